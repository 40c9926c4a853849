"""What plan and twin say together: the load that users send, the engines a plan stands for, the verdict. Pure."""
