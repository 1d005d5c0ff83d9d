{{/*
What the operator does with the API, and no more: docs/operator.md has the same as a table, and tests hold both
against what it really asks for.
*/}}
{{- define "isthmus.rules" -}}
{{- if include "isthmus.runs" (list . "modelserving") }}
- apiGroups: [workload.serving.volcano.sh]
  resources: [modelservings]
  verbs: [get, list, watch, create, patch]
- apiGroups: [workload.serving.volcano.sh]
  resources: [modelservings/status]
  verbs: [patch]
# Pods block the deletion of their owner, which needs this where the API server enforces it (MS-429).
- apiGroups: [workload.serving.volcano.sh]
  resources: [modelservings/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods, services]
  verbs: [get, list, watch, create, delete, patch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, delete, patch]
# Gang scheduling, where Volcano is installed.
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete, patch]
# LeaderWorkerSets become ModelServings, where their API is installed.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets/status]
  verbs: [patch]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets/finalizers]
  verbs: [update]
{{- end }}
{{- if include "isthmus.runs" (list . "graph") }}
# Graphs, and what they are made of.
- apiGroups: [nvidia.com]
  resources: [dynamographdeployments]
  verbs: [list, watch]
- apiGroups: [nvidia.com]
  resources: [dynamographdeployments/status]
  verbs: [patch]
- apiGroups: [nvidia.com]
  resources: [dynamographdeployments/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, delete, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, delete, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch]
# The rights that a graph's own Role gives its pods: nobody may give what he has not.
- apiGroups: [""]
  resources: [endpoints, pods]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [nvidia.com]
  resources: [dynamoworkermetadatas]
  verbs: [get, list, watch, create, update, patch, delete]
{{- end }}
{{- if include "isthmus.runs" (list . "poolrelay") }}
# Relays and the pools that they are for.
- apiGroups: [nvidia.com]
  resources: [dynamopoolrelays, dynamographdeployments]
  verbs: [list, watch]
- apiGroups: [nvidia.com]
  resources: [dynamopoolrelays/status]
  verbs: [patch]
- apiGroups: [nvidia.com]
  resources: [dynamopoolrelays/finalizers]
  verbs: [update]
- apiGroups: [workload.serving.volcano.sh]
  resources: [modelservings]
  verbs: [get, list, watch]
# What a relay is made of. Only its Service is ever deleted.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, delete, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch]
# The rights that a relay's own Role gives it: nobody may give what he has not.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: {{ ternary "[get, list, watch]" "[list, watch]" .Values.relay.metadataRights }}
{{- if .Values.relay.metadataRights }}
- apiGroups: [nvidia.com]
  resources: [dynamoworkermetadatas]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports]
  verbs: [create, delete, get, list, patch, watch]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# A restricted operator claims its namespace, and one of the whole cluster leaves such namespaces alone.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
{{- if include "isthmus.target" . }}
  verbs: [get, create, patch]
{{- else }}
  verbs: [list, watch]
{{- end }}
{{- end -}}
