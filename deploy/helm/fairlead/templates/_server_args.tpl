{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "fairlead.healthPort" -}}8080{{- end -}}

{{/* How the server is started; a list. */}}
{{- define "fairlead.serverArgs" -}}
- --engine=kubernetes
- --namespace=$(POD_NAMESPACE)
- --health-listen=0.0.0.0:{{ include "fairlead.healthPort" . }}
- --log-level={{ .Values.server.logLevel }}
- --companion-dir={{ if .Values.agent.enabled }}{{ .Values.agent.hostDir }}/bin{{ end }}
{{- with .Values.server.slurmImage }}
- --slurm-image={{ . }}
{{- end }}
{{- with .Values.server.watchNamespace }}
- --watch-namespace={{ . }}
{{- end }}
{{- range .Values.networkPolicy.closedCIDRs }}
- --closed-range={{ . }}
{{- end }}
{{- with .Values.server.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}
