// SPDX-License-Identifier: Apache-2.0
// NotificationTopic: where administrators are told; Notification: one event on its way to one topic (docs/notifications.md).
#include "api/crds.h"

namespace fairlead::api {
namespace {

constexpr const char* kTopicCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: notificationtopics.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Namespaced
  names: {plural: notificationtopics, singular: notificationtopic, kind: NotificationTopic, listKind: NotificationTopicList, shortNames: [ntopic]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Delivered, type: string, jsonPath: ".status.conditions[?(@.type==\"Delivered\")].status"}
    - {name: Waiting, type: integer, jsonPath: .status.waiting}
    - {name: Last, type: date, jsonPath: .status.lastDelivered}
    - {name: Message, type: string, priority: 1, jsonPath: ".status.conditions[?(@.type==\"Delivered\")].message"}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: Where administrators are told of what happens to the clusters that name this topic.
        required: [spec]
        properties:
          spec:
            type: object
            required: [channels]
            properties:
              clusterEvents:
                type: object
                description: "It is told of events of clusters (ClusterEvent), too: in the server's own namespace (fairlead-system) of those of all clusters, in the namespace of a cluster of that one's, elsewhere of none."
                properties:
                  detailTypes: {type: array, maxItems: 3, items: {type: string, enum: [ClusterEvent, ClusterStateChange, NodeHealth]}, description: "In which of EventBridge's forms; levels and kinds choose among the first. Not given: ClusterEvent."}
                  levels: {type: array, maxItems: 3, items: {type: string, enum: [Info, Warn, Error]}, description: "Not given: Warn and Error."}
                  clusters: {type: array, maxItems: 100, items: {type: string, maxLength: 63}, description: "Their names; none: all."}
                  kinds: {type: array, maxItems: 100, items: {type: string, maxLength: 63}, description: "ClusterStatus, InstanceFailed, ...; none: all."}
              channels:
                type: array
                maxItems: 16
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  description: Exactly one of webhook, email, sns.
                  required: [name]
                  properties:
                    name: {type: string, pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength: 63}
                    timeoutSeconds: {type: integer, minimum: 1, maximum: 30, default: 10, description: "For one attempt, from connecting to the answer."}
                    webhook:
                      type: object
                      description: "POST of the event as JSON. Answers 200-299 are taken as delivered, redirects are not followed."
                      properties:
                        url: {type: string, maxLength: 2048, description: "https://..."}
                        urlFrom:
                          type: object
                          description: "A key of a Secret in this namespace that has the label fairlead.dev/notifications: \"true\", as every Secret that a topic names."
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
                        insecureHTTP: {type: boolean, description: "Permits an http:// address: nobody checks who answers, and who listens reads along."}
                        hmacSecret:
                          type: object
                          description: "Key of the signature in header webhook-signature: at least 16 bytes, or whsec_ and base64. The Secret has the label fairlead.dev/notifications: \"true\"."
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
                        caSecret:
                          type: object
                          description: "PEM of the authorities to trust in place of the system's."
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
                    sns:
                      type: object
                      description: "POST of the document that Amazon SNS sends to HTTPS subscribers, without its X.509 signature."
                      properties:
                        url: {type: string, maxLength: 2048}
                        urlFrom:
                          type: object
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
                        topicArn: {type: string, maxLength: 256}
                        insecureHTTP: {type: boolean}
                        hmacSecret:
                          type: object
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
                        caSecret:
                          type: object
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
                    email:
                      type: object
                      required: [server, from, to]
                      properties:
                        server: {type: string, minLength: 1, maxLength: 253}
                        port: {type: integer, minimum: 1, maximum: 65535, description: "Default: 587, with TLS from the start 465, without TLS 25."}
                        tls: {type: string, enum: [StartTLS, TLS, None], default: StartTLS, description: "None sends no password and lets who listens read along."}
                        from: {type: string, minLength: 3, maxLength: 254}
                        to: {type: array, minItems: 1, maxItems: 16, items: {type: string, minLength: 3, maxLength: 254}}
                        credentialsSecret:
                          type: object
                          description: "A Secret with the keys username and password, and the label fairlead.dev/notifications: \"true\"."
                          required: [name]
                          properties:
                            name: {type: string, minLength: 1}
                        caSecret:
                          type: object
                          required: [name, key]
                          properties:
                            name: {type: string, minLength: 1}
                            key: {type: string, minLength: 1}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
)yaml";

constexpr const char* kNotificationCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: notifications.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Namespaced
  names: {plural: notifications, singular: notification, kind: Notification, listKind: NotificationList, shortNames: [ntf]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Topic, type: string, jsonPath: .spec.topic}
    - {name: Event, type: string, jsonPath: .spec.event.type}
    - {name: Cluster, type: string, jsonPath: .spec.event.cluster.name}
    - {name: Head, type: string, jsonPath: .spec.event.head}
    - {name: From, type: string, jsonPath: .spec.event.oldState}
    - {name: To, type: string, jsonPath: .spec.event.newState}
    - {name: Delivery, type: string, jsonPath: .status.state}
    - {name: Cause, type: string, priority: 1, jsonPath: .spec.event.cause}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: One event on its way to the channels of one topic. Made by Fairlead.
        required: [spec]
        properties:
          spec:
            type: object
            required: [topic, event]
            properties:
              topic: {type: string, minLength: 1}
              event: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
)yaml";

}  // namespace

kube::Json notification_topic_crd() { return parse_crd(kTopicCrd); }
kube::Json notification_crd() { return parse_crd(kNotificationCrd); }

}  // namespace fairlead::api
