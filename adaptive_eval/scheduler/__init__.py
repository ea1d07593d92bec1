"""The only asyncio loop: moves values between the decision core and the servers, the graders and the store."""
