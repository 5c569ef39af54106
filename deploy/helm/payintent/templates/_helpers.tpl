{{- define "payintent.labels" -}}
app.kubernetes.io/name: payintent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "payintent.selector" -}}
app.kubernetes.io/name: payintent
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "payintent.fullname" -}}
{{ printf "%s-%s" .root.Release.Name .component | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "payintent.image" -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- end }}

{{/* Every pod runs without a cluster token and without service links in its environment. */}}
{{- define "payintent.podSecurity" -}}
{{- $ := .root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $.Values.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Spread pods of the same kind over all nodes. */}}
{{- define "payintent.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "payintent.selector" . | nindent 8 }}
{{- end }}

{{/* A worker copies settlement files from an S3-compatible store to /tmp. */}}
{{- define "payintent.volumes" -}}
{{- $grants := and (eq .component "migrate") .root.Values.migrate.grants }}
{{- $copies := eq .component "worker" }}
{{- if or .root.Values.caConfigMap $grants $copies }}
volumes:
{{- with .root.Values.caConfigMap }}
  - name: ca
    configMap: {name: {{ . }}}
{{- end }}
{{- if $grants }}
  - name: grants
    configMap: {name: {{ include "payintent.fullname" (dict "root" .root "component" "grants") }}}
{{- end }}
{{- if $copies }}
  - name: tmp
    emptyDir: {sizeLimit: 5Gi}
{{- end }}
{{- end }}
{{- end }}

{{- define "payintent.mounts" -}}
{{- $grants := and (eq .component "migrate") .root.Values.migrate.grants }}
{{- $copies := eq .component "worker" }}
{{- if or .root.Values.caConfigMap $grants $copies }}
volumeMounts:
{{- if .root.Values.caConfigMap }}
  - {name: ca, mountPath: /etc/payintent/ca, readOnly: true}
{{- end }}
{{- if $grants }}
  - {name: grants, mountPath: /etc/payintent/grants, readOnly: true}
{{- end }}
{{- if $copies }}
  - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}
{{- end }}

{{- define "payintent.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "payintent.environment" -}}
env:
{{- range $name, $value := .root.Values.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
{{- end }}
envFrom:
  - secretRef: {name: {{ .root.Values.existingSecret }}}
{{- with .secret }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
