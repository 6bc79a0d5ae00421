"""`outscaler advise`: what is needed at the same time of every day, from the record of purchases (docs/advise.md).

history.py: ended operations -> purchases and sizes of groups. patterns.py: purchases -> patterns -> schedules.
backtest.py: schedules on days that they have not seen -> proposals and refusals. All of it is pure.
"""
