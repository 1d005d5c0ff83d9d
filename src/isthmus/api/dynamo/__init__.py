"""DynamoGraphDeployment as Isthmus reads it: types, names, one model of both versions, and the analysis.

graphs.py decodes what the API server gives, normalise.py makes one model of either form, names.py names what
comes of it, and analysis.py says what relays want to know. Pure.
"""
