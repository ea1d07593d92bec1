// The words of the page, each with what it means.

import { glossaryList } from "./terms.js";
/** @import { Section } from "./parts.js" */

/** @type {Section} */
export const glossary = {
  id: "words",
  title: "What the words mean",
  render() {
    return [glossaryList()];
  },
};
