//! Reports the result of a reconcile in the object's status, and in an Event when the verdict on its spec changed.
//!
//! An unchanged status is not written. An object that cannot be decoded gets a condition and an Event of its own; other
//! objects are not affected.

use etcd_operator_api::condition::{self, ConditionType, Conditioned, Finding, Readiness, Truth};
use etcd_operator_api::severity::Severity;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use tracing::warn;

use crate::apply::{Applier, Error, Writable, Written};
use crate::clock::SharedClock;
use crate::error::{Class, Classified as _};
use crate::events::{Notice, Recorder};
use crate::key::ObjectKey;
use crate::queue::Wake;
use crate::store::{Malformed, Store};

/// Writes statuses and publishes Events of one controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reporter {
    applier: Applier,
    recorder: Recorder,
    clock: SharedClock,
}

impl Reporter {
    /// Creates a reporter that writes through `applier` and publishes through `recorder`.
    pub fn new(applier: Applier, recorder: Recorder, clock: SharedClock) -> Self {
        Self {
            applier,
            recorder,
            clock,
        }
    }

    /// Writes the status of an object. Also publishes the verdict on the spec as an Event if it changed, or if the API
    /// server rejects the status.
    pub async fn report<K>(&self, observed: &K, status: K::Status) -> Result<Written<K>, Error>
    where
        K: Writable + HasStatus,
        K::Status: Conditioned + Serialize + PartialEq,
    {
        let now = status.conditions();
        let before = observed.status().map(Conditioned::conditions).unwrap_or_default();
        let written = if observed.status() == Some(&status) {
            Ok(Written::Unchanged)
        } else {
            self.applier.update_status(observed, &status).await
        };
        let (verdict, status_error) = match &written {
            Ok(_) => (condition::news(before, now, ConditionType::Accepted), None),
            // Only an edit of the object helps, and only the Event can tell the user.
            Err(error) if error.class() == Class::Invalid => {
                (condition::find(now, ConditionType::Accepted), Some(error))
            }
            Err(_) => (None, None),
        };
        if let Some(verdict) = verdict {
            let is_refused = verdict.status == Truth::False.as_str();
            let severity = if is_refused || status_error.is_some() {
                Severity::Warning
            } else {
                Severity::Normal
            };
            let reason = match verdict.reason.as_deref() {
                Some("Invalid") => "Invalid",
                Some("NotImplemented") => "NotImplemented",
                Some("NotServed") => "NotServed",
                _ => "Accepted",
            };
            let mut note = verdict.message.clone().unwrap_or_default();
            if let Some(error) = status_error {
                note = format!("{note} The API server rejected the status update: {error}");
            }
            self.tell(observed, severity, reason, "Validate", note);
        }
        written
    }

    /// Publishes an Event about an object.
    pub fn tell<K: Writable>(
        &self,
        about: &K,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let meta = about.meta();
        let regarding = ObjectReference {
            uid: meta.uid.clone(),
            ..reference::<K>(&ObjectKey::of(about))
        };
        self.recorder.publish(Notice {
            regarding,
            severity,
            reason,
            action,
            note,
        });
    }

    /// Handles a key without a decoded object in the store. Reports a malformed object if this installation serves it, and
    /// forgets an object that does not exist.
    pub async fn absent<K: Writable>(
        &self,
        store: &Store<K>,
        key: &ObjectKey,
        is_served: impl FnOnce(&Malformed) -> bool,
    ) -> Result<Wake, Error> {
        match store.malformed(key) {
            Some(malformed) if !is_served(&malformed) => Ok(Wake::OnChange),
            Some(malformed) => self
                .report_malformed::<K>(&malformed)
                .await
                .map(|()| Wake::OnChange),
            None => Ok(Wake::Never),
        }
    }

    /// Writes conditions and publishes an Event about an object that cannot be decoded, unless its conditions say so
    /// already.
    async fn report_malformed<K: Writable>(&self, malformed: &Malformed) -> Result<(), Error> {
        let Some(raw) = self.applier.read_raw::<K>(&malformed.key).await? else {
            return Ok(());
        };
        let before = raw.conditions();
        let finding = Finding {
            type_: ConditionType::Accepted,
            status: Truth::False,
            reason: "Invalid",
            message: format!(
                "The object cannot be decoded: {}. Correct the field and apply the object again.",
                malformed.error
            ),
        };
        let mut findings = Readiness::Stalled
            .findings(finding.reason, &finding.message)
            .to_vec();
        findings.push(finding);
        let after = condition::merge(&before, &findings, malformed.generation, self.clock.now());
        if before == after {
            return Ok(());
        }
        let status = serde_json::json!({
            "observedGeneration": malformed.generation,
            "phase": "Invalid",
            "conditions": after,
        });
        match self.applier.merge_raw_status::<K>(malformed, &raw, status).await {
            // The API server validates the whole object again. A CEL rule that fails on the malformed field makes it reject
            // any status. Then only the Event remains; a retry cannot succeed before the object changes.
            Err(error) if error.class() == Class::Invalid => {
                warn!(key = %malformed.key, %error, "the API server rejected the status of a malformed object");
            }
            written => written?,
        }
        let regarding = ObjectReference {
            uid: malformed.uid.clone(),
            ..reference::<K>(&malformed.key)
        };
        let note = format!("The object cannot be decoded: {}.", malformed.error);
        self.recorder.publish(Notice {
            regarding,
            severity: Severity::Warning,
            reason: "Invalid",
            action: "Validate",
            note,
        });
        Ok(())
    }
}

fn reference<K: Resource<DynamicType = ()>>(key: &ObjectKey) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: key.namespace().map(str::to_owned),
        name: Some(key.name.clone()),
        ..ObjectReference::default()
    }
}
