//! What a controller found, told where people look: in the status, and in an Event when the verdict on a spec changed.
//!
//! A status that says nothing new is not written. Objects that cannot be decoded are told so on themselves, for they
//! stop nobody but themselves.

use etcd_operator_api::condition::{self, ConditionType, Conditioned, Finding, Truth};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use tracing::warn;

use crate::apply::{Applier, Error, Writable, Written};
use crate::clock::SharedClock;
use crate::error::{Class, Classified as _};
use crate::events::{Notice, Recorder, Severity};
use crate::key::ObjectKey;
use crate::queue::Wake;
use crate::store::{Malformed, Store};

/// Tells people what a controller found; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reporter {
    applier: Applier,
    recorder: Recorder,
    clock: SharedClock,
}

impl Reporter {
    /// A reporter that writes through `applier` and publishes through `recorder`.
    pub fn new(applier: Applier, recorder: Recorder, clock: SharedClock) -> Self {
        Self {
            applier,
            recorder,
            clock,
        }
    }

    /// Stores the status of an object; if the verdict on the spec is news, or if the API server takes no such status,
    /// publishes it too.
    pub async fn report<K>(&self, seen: &K, status: K::Status) -> Result<Written<K>, Error>
    where
        K: Writable + HasStatus,
        K::Status: Conditioned + Serialize + PartialEq,
    {
        let now = status.conditions();
        let before = seen.status().map(Conditioned::conditions).unwrap_or_default();
        let written = if seen.status() == Some(&status) {
            Ok(Written::Unchanged)
        } else {
            self.applier.update_status(seen, &status).await
        };
        let (verdict, unstored) = match &written {
            Ok(_) => (condition::news(before, now, ConditionType::Accepted), None),
            // Nothing but an edit of the object helps, and only the Event is left to say so.
            Err(error) if error.class() == Class::Invalid => {
                (condition::find(now, ConditionType::Accepted), Some(error))
            }
            Err(_) => (None, None),
        };
        if let Some(verdict) = verdict {
            let refused = verdict.status == Truth::False.as_str();
            let severity = if refused || unstored.is_some() {
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
            if let Some(error) = unstored {
                note = format!("{note} The API server refuses to store this in the status: {error}");
            }
            self.tell(seen, severity, reason, "Validate", note);
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

    /// What to do about a key that is not in the store: an object that cannot be decoded is told so if it is served,
    /// one that is gone is forgotten.
    pub async fn absent<K: Writable>(
        &self,
        store: &Store<K>,
        key: &ObjectKey,
        serves: impl FnOnce(&Malformed) -> bool,
    ) -> Result<Wake, Error> {
        match store.malformed(key) {
            Some(bad) if !serves(&bad) => Ok(Wake::OnChange),
            Some(bad) => self.malformed::<K>(&bad).await.map(|()| Wake::OnChange),
            None => Ok(Wake::Never),
        }
    }

    async fn malformed<K: Writable>(&self, bad: &Malformed) -> Result<(), Error> {
        let Some(raw) = self.applier.read_raw::<K>(&bad.key).await? else {
            return Ok(());
        };
        let before = raw.conditions();
        let finding = Finding {
            type_: ConditionType::Accepted,
            status: Truth::False,
            reason: "Invalid",
            message: format!(
                "The object cannot be read: {}. Correct the field and apply it again.",
                bad.error
            ),
        };
        let after = condition::merge(&before, &[finding], bad.generation, self.clock.now());
        if before == after {
            return Ok(());
        }
        let status = serde_json::json!({
            "observedGeneration": bad.generation,
            "phase": "Invalid",
            "conditions": after,
        });
        match self.applier.merge_raw_status::<K>(bad, &raw, status).await {
            // The API server checks the rules of admission again, and where one stumbles over the very field it takes
            // no status at all. The Event is left; trying again changes nothing until the object changes.
            Err(error) if error.class() == Class::Invalid => {
                warn!(key = %bad.key, %error, "its status cannot say that it is malformed");
            }
            written => written?,
        }
        let regarding = ObjectReference {
            uid: bad.uid.clone(),
            ..reference::<K>(&bad.key)
        };
        let note = format!("The object cannot be read: {}.", bad.error);
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
