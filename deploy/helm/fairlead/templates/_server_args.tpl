{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "fairlead.healthPort" -}}8080{{- end -}}

{{- define "fairlead.webhookPort" -}}9443{{- end -}}

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
{{- if .Values.server.watchNamespace }}
- --watch-namespace={{ .Values.server.watchNamespace }}
{{- else }}
- --webhook-listen=0.0.0.0:{{ include "fairlead.webhookPort" . }}
- --webhook-service={{ include "fairlead.fullname" . }}-webhooks
{{- end }}
{{- if .Values.server.decisionLogMiB }}
- --decision-log-maxsize={{ int .Values.server.decisionLogMiB }}
{{- else }}
- --decision-log=off
{{- end }}
{{- range .Values.networkPolicy.closedCIDRs }}
- --closed-range={{ . }}
{{- end }}
{{- with .Values.server.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}
