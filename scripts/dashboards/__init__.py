"""The dashboards that the chart ships, as code: `boards` states what each shows, `panels` how Grafana is given it.

`python -m scripts.dashboards` writes them to charts/blockhouse/files/dashboards, a file of JSON each.
"""
