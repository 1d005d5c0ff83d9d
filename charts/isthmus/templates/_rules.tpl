{{/*
What the operator does with the API, and no more: docs/operator.md has the same as a table, and tests hold both
against what it really asks for.
*/}}
{{- define "isthmus.rules" -}}
{{- if include "isthmus.runs" (list . "modelserving") }}
- apiGroups: [workload.serving.volcano.sh]
  resources: [modelservings]
  verbs: [get, list, watch]
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
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
