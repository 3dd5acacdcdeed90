{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "fairlead.healthPort" -}}8080{{- end -}}

{{- define "fairlead.webhookPort" -}}9443{{- end -}}

{{- define "fairlead.awsPort" -}}6444{{- end -}}

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
{{- if .Values.server.aws.enabled }}
{{- if .Values.server.watchNamespace }}
{{- fail "server.aws.enabled needs rights in the whole cluster: identities, nodes and clusters of all namespaces. It does not go with server.watchNamespace" }}
{{- end }}
- --aws-listen=0.0.0.0:{{ include "fairlead.awsPort" . }}
- --aws-endpoint={{ .Values.server.aws.endpoint | default (printf "https://%s-aws.%s.svc" (include "fairlead.fullname" .) .Release.Namespace) }}
{{- if .Values.server.aws.scripts }}
- --s3-directory=/srv/s3
{{- end }}
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
