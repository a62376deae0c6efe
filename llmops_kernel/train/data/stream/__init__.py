"""Training rows that are read and tokenised while the model trains, for data larger than memory.

Ray Data is not used for it: its blocks, and which worker gets which, differ between attempts, so
a resumed run could not continue with the rows that it has not trained on yet.
"""
