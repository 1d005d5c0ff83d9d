{{/* Names of objects in the release's namespace: short enough for a suffix of eleven characters. */}}
{{- define "isthmus.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of cluster-scoped objects: two releases of one name in two namespaces have two. */}}
{{- define "isthmus.clusterName" -}}
{{- printf "%s-%s" (include "isthmus.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "isthmus.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isthmus.labels" -}}
{{ include "isthmus.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "isthmus.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "isthmus.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* The one namespace to work in; empty where it is all of them. */}}
{{- define "isthmus.target" -}}
{{- if .Values.namespaceRestriction.enabled -}}
{{- default .Release.Namespace .Values.namespaceRestriction.targetNamespace -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.leaseNamespace" -}}
{{- default .Release.Namespace .Values.controllerManager.leaderElection.namespace -}}
{{- end -}}

{{- define "isthmus.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "isthmus.serviceAccount" . }}
    namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* Whether a controller may run: `include "isthmus.runs" (list . "graph")` is empty where it may not. */}}
{{- define "isthmus.runs" -}}
{{- $controllers := (index . 0).Values.controllers -}}
{{- if or (not $controllers) (has (index . 1) $controllers) -}}
true
{{- end -}}
{{- end -}}

{{/* The operator's configuration file (docs/operator.md). */}}
{{- define "isthmus.config" -}}
apiVersion: operator.config.dynamo.nvidia.com/v1alpha1
kind: OperatorConfiguration
server:
  metrics:
    port: {{ .Values.metrics.port }}
  healthProbe:
    port: {{ .Values.health.port }}
leaderElection:
  enabled: {{ .Values.controllerManager.leaderElection.enabled }}
  id: {{ .Values.controllerManager.leaderElection.id | quote }}
  namespace: {{ include "isthmus.leaseNamespace" . | quote }}
namespace:
  restricted: {{ include "isthmus.target" . | quote }}
{{- if .Values.namespaceRestriction.enabled }}
  scope:
    leaseDuration: {{ .Values.namespaceRestriction.lease.duration | quote }}
    leaseRenewInterval: {{ .Values.namespaceRestriction.lease.renewInterval | quote }}
{{- end }}
discovery:
  backend: {{ .Values.discoveryBackend }}
infrastructure:
  natsAddress: {{ .Values.natsAddr | quote }}
  etcdAddress: {{ .Values.etcdAddr | quote }}
  modelExpressURL: {{ .Values.modelExpressURL | quote }}
  prometheusEndpoint: {{ .Values.prometheusEndpoint | quote }}
logging:
  level: {{ .Values.logging.level }}
  format: {{ .Values.logging.format }}
multiCluster:
  {{- toYaml .Values.dynamo.multiCluster | nindent 2 }}
relay:
  image: {{ default (include "isthmus.image" .) .Values.relay.image | quote }}
  command: {{ toJson .Values.relay.command }}
  metadataRights: {{ .Values.relay.metadataRights }}
  discovery:
    {{- toYaml .Values.relay.discovery | nindent 4 }}
  location:
    {{- toYaml .Values.relay.location | nindent 4 }}
{{- end -}}
