"""Sites on a Ray cluster: each serves a model on one node, asks it there, grades there, and sends back what came of it.

messages       what the head and a site tell each other
SiteWorker     what runs on the node: the server, its endpoint and the grader of a local run
SiteLink       one site seen from the head: requests out and answers in, many in a message
SitesEndpoint  a model over all its sites
SiteHost       a site that is placed, begun, lost, placed again and ended
SiteKeeper     what the sites of a run belong to, with all that they have taken of the cluster
RayCluster     where sites are placed, and found again by a run that goes on

Decisions, budget and ledger stay on the head, in one process.
"""
