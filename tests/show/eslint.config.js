// What is an error in the page's modules besides what the type check finds; names that are not there are its business.

import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    rules: {
      "no-undef": "off",
      "no-control-regex": "off", // texts of models hold them, and are shown by their codes
      "no-unused-vars": [
        "error",
        { ignoreRestSiblings: true, destructuredArrayIgnorePattern: "^_", varsIgnorePattern: "^(_|checks$)" },
      ],
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-implicit-coercion": "error",
      "no-shadow-restricted-names": "error",
      "no-use-before-define": ["error", { functions: false, variables: false }],
      "object-shorthand": "error",
    },
  },
];
