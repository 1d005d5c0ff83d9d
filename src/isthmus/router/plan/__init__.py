"""What the router decides, pure: which pools a request may go to, in which order, and when a pool rests."""
