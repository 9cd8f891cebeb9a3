{{- /* What all pods have alike: the image by digest or tag, and what the site wants of every pod. */}}
{{- define "unhang.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- define "unhang.labels" -}}
app.kubernetes.io/name: {{ .name }}
{{- with omit .values.podLabels "app.kubernetes.io/name" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "unhang.placement" -}}
nodeSelector: {{- .nodeSelector | toYaml | nindent 2 }}
tolerations: {{- .tolerations | toYaml | nindent 2 }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A pod has one account; which rights it has, access.yaml says. */}}
{{- define "unhang.account" -}}
{{ if .Values.watch }}unhang-watch{{ else }}unhang-results{{ end }}
{{- end }}
