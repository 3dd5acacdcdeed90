{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "fairlead.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{- .Release.Name | trunc 50 | trimSuffix "-" -}}{{- else -}}{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fairlead
{{- end -}}

{{/* Of (dict "root" $ "component" "server"): what a Deployment selects by. Never changes between versions. */}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "fairlead.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{- default (printf "%s-server" (include "fairlead.fullname" .)) .Values.serviceAccount.name -}}
{{- else -}}{{- required "serviceAccount.name: name the account to use, or let the chart create one (serviceAccount.create)" .Values.serviceAccount.name -}}{{- end -}}
{{- end -}}

{{/* Of (dict "root" $ "program" "fairlead-server" "digest" ""). */}}
{{- define "fairlead.image" -}}
{{- $registry := default "fairlead.dev" .root.Values.image.registry | trimSuffix "/" -}}
{{- if .digest -}}{{- printf "%s/%s@%s" $registry .program .digest -}}
{{- else -}}{{- printf "%s/%s:%s" $registry .program (default .root.Chart.AppVersion .root.Values.image.tag) -}}{{- end -}}
{{- end -}}

{{- /* The definition of training jobs that SageMaker's own operator has brought; empty: there is none. */ -}}
{{- define "fairlead.foreignTraining" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "hyperpodpytorchjobs.sagemaker.amazonaws.com" }}
{{- if $there }}
{{- if ne (get (default (dict) $there.metadata.labels) "app.kubernetes.io/part-of") "fairlead" }}hyperpodpytorchjobs.sagemaker.amazonaws.com{{ end }}
{{- end }}
{{- end }}

{{- /* The name of a definition of kueue.x-k8s.io that is there and somebody else's; empty: none, or nobody to ask (`helm template`). */ -}}
{{- define "fairlead.foreignQueues" -}}
{{- range $path, $_ := .Files.Glob "files/crds/*.kueue.x-k8s.io.yaml" }}
{{- $name := base $path | trimSuffix ".yaml" }}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if $there }}
{{- if ne (get (default (dict) $there.metadata.labels) "app.kubernetes.io/part-of") "fairlead" }} {{ $name }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
