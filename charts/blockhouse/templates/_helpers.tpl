{{- define "blockhouse.fullname" -}}
{{- if hasSuffix "operator" .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-operator" (.Release.Name | trunc 54 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "blockhouse.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "blockhouse.labels" -}}
{{ include "blockhouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "blockhouse.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "blockhouse.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The namespaces that are watched, as a JSON array; all when it is empty. */}}
{{- define "blockhouse.namespaces" -}}
{{- if and .Values.watchNamespace .Values.watchNamespaces -}}
{{- fail "watchNamespace and watchNamespaces: give one of them" -}}
{{- end -}}
{{- (empty .Values.watchNamespace | ternary .Values.watchNamespaces (list .Values.watchNamespace)) | toJson -}}
{{- end -}}

{{- define "blockhouse.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do where its pipelines are: exactly the requests that it makes. */}}
{{- define "blockhouse.rules" -}}
- apiGroups: [ingest.blockhouse.dev]
  resources: [blockaggregators, kafkareassignments]
  verbs: [get, list, watch]
# Patched for one annotation alone, which is taken away once the mirror has the request.
- apiGroups: [ingest.blockhouse.dev]
  resources: [kafkamirrors]
  verbs: [get, list, watch, patch]
- apiGroups: [ingest.blockhouse.dev]
  resources: [clickhouseshardingests]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [ingest.blockhouse.dev]
  resources: [blockaggregators/status, clickhouseshardingests/status, kafkareassignments/status, kafkamirrors/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps, services, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, create, patch, delete]
# Which release serves the pipelines of a namespace: two must notice each other.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [blockhouse-pipelines]
  verbs: [get, update]
# Secrets that specs refer to are read one by one, never listed; those with its own credentials are created for each pipeline.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}
