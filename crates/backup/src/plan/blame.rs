//! Which field of the spec a failure speaks of, so that whoever reads it knows what to change.

use etcd_operator_api::backup::Verification;
use etcd_operator_api::location::Location;

use super::ended::NOT_STARTED;
use crate::desired::{Desired, Source};

/// Why the pod of a Job does not start, as people read it.
pub fn hindered(desired: &Desired, note: &str) -> String {
    let note = note.trim_end_matches('.');
    match hindering(desired, note) {
        Some(field) => format!("{field}: {note}"),
        None => note.to_owned(),
    }
}

/// The field that keeps a pod from being started, by the words of Kubernetes.
fn hindering(desired: &Desired, note: &str) -> Option<String> {
    if note.contains("persistentvolumeclaim") && matches!(desired.location, Location::Local { .. }) {
        return Some("spec.local.persistentVolumeClaim".to_owned());
    }
    if note.contains("Image") && desired.verification == Verification::Restore {
        return field(desired, "EtcdImage");
    }
    note.contains("Unschedulable").then(|| "spec.job".to_owned())
}

/// A failure as people read it: the field, then the word and the sentence of the Job.
pub fn told(desired: &Desired, reason: &str, message: &str) -> String {
    let field = if reason == NOT_STARTED {
        hindering(desired, message)
    } else {
        field(desired, reason)
    };
    match field {
        Some(field) => format!("{field}: {reason}: {message}"),
        None => format!("{reason}: {message}"),
    }
}

/// The field that a reason of a Job speaks of.
fn field(desired: &Desired, reason: &str) -> Option<String> {
    let place = &desired.location;
    let (block, credentials) = block(place);
    let of_store = |name: &str| Some(format!("spec.{block}.{name}"));
    match reason {
        "Credentials" | "Forbidden" => Some(credentials),
        "NoBucket" | "NotFound" | "Full" if matches!(place, Location::Local { .. }) => {
            of_store("persistentVolumeClaim")
        }
        "NoBucket" | "NotFound" | "OtherCluster" | "Exists" | "Full" => of_store("path"),
        "WrongRegion" => of_store("region"),
        "TlsUntrusted" | "Authority" => of_store("caSecret"),
        "Unreachable" | "NotAStore" | "TimedOut" if !matches!(place, Location::Local { .. }) => {
            of_store("endpoint")
        }
        "Deadline" | "DeadlineExceeded" | "TooSlow" => Some("spec.backupPolicy.timeoutInSecond".to_owned()),
        "Key" => Some(format!(
            "spec.encryption.secretRef (Secret {})",
            desired.keys.as_deref().unwrap_or_default()
        )),
        "Unauthorised" | "ClientTLS" => Some(match (&desired.client_tls, &desired.source) {
            (None, Source::Cluster(name)) => format!("spec.TLS of the EtcdCluster {name}"),
            _ => "spec.clientTLSSecret".to_owned(),
        }),
        "NoMember" => Some(match desired.source {
            Source::Cluster(_) => "spec.etcdCluster".to_owned(),
            Source::Endpoints(_) => "spec.etcdEndpoints".to_owned(),
        }),
        "EtcdImage" => Some(match (&desired.etcd_image, &desired.source) {
            (None, Source::Cluster(name)) => format!("the image of the EtcdCluster {name}"),
            _ => "spec.job.etcdImage".to_owned(),
        }),
        "OOMKilled" => Some("spec.job.resources".to_owned()),
        _ => None,
    }
}

/// The block of the store, and where its credentials are named.
fn block(location: &Location) -> (&'static str, String) {
    let secret = |field: &str, secret: &Option<String>| match secret {
        Some(secret) => format!("spec.{field} (Secret {secret})"),
        None => format!("spec.{field} (the identity of the platform)"),
    };
    match location {
        Location::S3 { secret: name, .. } => ("s3", secret("s3.awsSecret", name)),
        Location::Abs { secret: name, .. } => ("abs", secret("abs.absSecret", name)),
        Location::Gcs { secret: name, .. } => ("gcs", secret("gcs.gcpSecret", name)),
        Location::Oss { secret: name, .. } => ("oss", secret("oss.ossSecret", name)),
        Location::Local { claim, .. } => (
            "local",
            format!("spec.local.persistentVolumeClaim (PersistentVolumeClaim {claim})"),
        ),
    }
}
