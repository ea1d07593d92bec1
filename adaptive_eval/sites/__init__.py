"""Sites on a Ray cluster: each serves a model on one node, asks it there, grades there, and sends the results back.

messages       messages between the head and a site, and connections that carry them where a node can be reached
SiteWorker     the site on its node: the server, its endpoint and the grader of a local run
SiteLink       the site as seen from the head: requests out and answers in, many in a message
SitesEndpoint  a model over all its sites
SiteHost       life of a site: placed, begun, lost, placed again and ended
SiteKeeper     owner of a run's sites and of all resources that they have taken
RayCluster     places sites, and finds those that an earlier start has left

Decisions, budget and database stay on the head, in one process.
"""
