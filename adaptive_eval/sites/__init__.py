"""Sites on a Ray cluster: each serves a model on one node, sends it requests, grades the answers, and returns both.

messages       messages between the head and a site, and connections that carry them where a node can be reached
SiteWorker     the site on its node: the server, its endpoint and the grader of a local run
SiteLink       the site as seen from the head: requests out and answers in, many in a message
SiteHost       life of a site: placed, begun, lost, placed again and ended
RayCluster     places sites, which end with the head

Decisions, budget and database stay on the head, in one process.
"""
