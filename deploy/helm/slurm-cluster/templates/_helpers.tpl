{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "slurm-cluster.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fairlead
{{- end -}}

{{/*
Changes a tree of values in place: entries of every flat `resources` (cpu, memory, gpu: 8 ...) get the names that Kubernetes knows. `resources` with requests or limits belong to
claims and stay as they are. Takes (dict "node" tree "names" names); renders nothing.
*/}}
{{- define "slurm-cluster.expand" -}}
{{- $names := .names -}}
{{- range $key, $value := .node -}}
{{- if kindIs "map" $value -}}
{{- if and (eq $key "resources") (not (hasKey $value "requests")) (not (hasKey $value "limits")) -}}
{{- $long := dict -}}
{{- range $short, $amount := $value -}}
{{- $name := default $short (get $names $short) -}}
{{- if hasKey $long $name -}}{{- fail (printf "resources: %s is there twice, once by its short name" $name) -}}{{- end -}}
{{- if not (kindIs "invalid" $amount) -}}{{- $_ := set $long $name $amount -}}{{- end -}}
{{- end -}}
{{- $_ := set $.node $key $long -}}
{{- else -}}
{{- include "slurm-cluster.expand" (dict "node" $value "names" $names) -}}
{{- end -}}
{{- else if kindIs "invalid" $value -}}
{{- $_ := unset $.node $key -}}
{{- end -}}
{{- end -}}
{{- end -}}
