"""DynamoGraphDeployment: the graph's components as Deployments and Services.

store.py says what there is, plan/ what to do about it (pure), controller.py does it through executor.py and
tells it through report.py. app/graph.py builds it.
"""
