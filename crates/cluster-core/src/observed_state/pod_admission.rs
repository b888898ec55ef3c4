//! What the API server says to the pod of a changed template, in a dry run before the template changes.

use super::external_text::{PodRefusal, pod_refusal};

/// Whether the API server would create the pods of a changed template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodAdmission {
    /// It was not asked.
    #[default]
    NotAsked,
    /// It would create them, or refuses them only for a quota, which counts the pods that they replace.
    Admitted,
    /// It cannot be asked: the operator may not create pods, or an admission webhook does not support dry runs.
    NotSupported {
        /// The words of the API server.
        message: String,
    },
    /// It refuses them.
    Refused {
        /// The words of the API server.
        message: String,
    },
    /// It did not answer, or cannot tell now, for example because an admission webhook does not answer.
    Unknown {
        /// What failed.
        message: String,
    },
}

impl PodAdmission {
    /// Reads a dry run that did not succeed. `code` is that of the API server, if it answered. Codes that do not judge
    /// the pod, such as 429, are [`Self::Unknown`].
    pub fn from_failure(code: Option<u16>, message: String) -> Self {
        match code {
            // It does not judge the pod: no login, no namespace, too slow, another write at the same time, too many requests.
            None | Some(401 | 404 | 408 | 409 | 429 | 500..) => Self::Unknown { message },
            Some(_) => match pod_refusal(&message) {
                PodRefusal::Quota => Self::Admitted,
                PodRefusal::Sender | PodRefusal::DryRun => Self::NotSupported { message },
                PodRefusal::Pod => Self::Refused { message },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_dry_run_is_told_apart_by_its_code_and_by_what_is_refused() {
        let found = |code, message: &str| PodAdmission::from_failure(code, message.to_owned());
        let message = |message: &str| message.to_owned();
        for (code, text) in [
            (
                403,
                r#"pods "c-0" is forbidden: violates PodSecurity "restricted:latest": seccompProfile (pod or container "etcd" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
            ),
            (
                403,
                r#"pods "c-0" is forbidden: error looking up service account etcd/none: serviceaccount "none" not found"#,
            ),
            (
                403,
                r#"pods "c-0" is forbidden: no PriorityClass with name none was found"#,
            ),
            (
                403,
                r#"pods "c-0" is forbidden: maximum memory usage per Container is 64Mi, but limit is 128Mi"#,
            ),
            (
                403,
                r#"pods "c-0" is forbidden: failed quota: small: must specify limits.memory for: etcd"#,
            ),
            (
                422,
                r#"pods "c-0" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"#,
            ),
            (400, r#"admission webhook "w.example.com" denied the request: no"#),
            (451, r#"admission webhook "w.example.com" denied the request: no"#),
        ] {
            assert_eq!(
                found(Some(code), text),
                PodAdmission::Refused {
                    message: message(text)
                }
            );
        }
        let quota = r#"pods "c-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3"#;
        let new_quota = r#"pods "c-0" is forbidden: status unknown for quota: small, resources: pods"#;
        for text in [quota, new_quota] {
            assert_eq!(found(Some(403), text), PodAdmission::Admitted);
        }
        for (code, text) in [
            (
                403,
                r#"pods is forbidden: User "system:serviceaccount:etcd:etcd-operator" cannot create resource "pods" in API group "" in the namespace "etcd""#,
            ),
            (
                400,
                r#"admission webhook "w.example.com" does not support dry run"#,
            ),
        ] {
            assert_eq!(
                found(Some(code), text),
                PodAdmission::NotSupported {
                    message: message(text)
                }
            );
        }
        for (code, text) in [
            (
                Some(500),
                r#"Internal error occurred: failed calling webhook "w.example.com": connection refused"#,
            ),
            (Some(409), "Operation cannot be fulfilled on resourcequotas"),
            (Some(429), "too many requests"),
            (None, "no answer within 35s"),
        ] {
            assert_eq!(
                found(code, text),
                PodAdmission::Unknown {
                    message: message(text)
                }
            );
        }
    }
}
