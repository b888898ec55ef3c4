//! Names the field of the spec that a failure points to, so that the user knows what to change.

use etcd_operator_api::backup::Verification;
use etcd_operator_api::location::Location;

use super::pod_obstacle::PodObstacle;
use super::run_state::NOT_STARTED;
use crate::desired::{Desired, Source};

/// Describes why the pod of a Job has not started: the field, if one explains it, then the text of the kubelet or the
/// scheduler.
pub fn describe_waiting_pod(desired: &Desired, text: &str) -> String {
    let text = text.trim_end_matches('.');
    match field_of_waiting_pod(desired, text) {
        Some(field) => format!("{field}: {text}"),
        None => text.to_owned(),
    }
}

/// Describes a failure: the field that points to its cause, if there is one, then the reason and the message of the
/// Job.
pub fn describe_failure(desired: &Desired, reason: &str, message: &str) -> String {
    let field = if reason == NOT_STARTED {
        field_of_waiting_pod(desired, message)
    } else {
        field_of_reason(desired, reason)
    };
    match field {
        Some(field) => format!("{field}: {reason}: {message}"),
        None => format!("{reason}: {message}"),
    }
}

/// The field that keeps a pod from starting, by the text of the kubelet or the scheduler. `None` if no field explains
/// it: without the verification `Restore`, for example, the image is the operator's own.
fn field_of_waiting_pod(desired: &Desired, text: &str) -> Option<String> {
    let is_local = matches!(desired.location, Location::Local { .. });
    if is_local && PodObstacle::VolumeClaim.is_reported_in(text) {
        return Some("spec.local.persistentVolumeClaim".to_owned());
    }
    if desired.verification == Verification::Restore && PodObstacle::Image.is_reported_in(text) {
        return field_of_reason(desired, "EtcdImage");
    }
    PodObstacle::Unschedulable
        .is_reported_in(text)
        .then(|| "spec.job".to_owned())
}

/// The field that the failure reason of a Job points to; `None` if no field does. For a pod that never started,
/// `field_of_waiting_pod` decides instead.
fn field_of_reason(desired: &Desired, reason: &str) -> Option<String> {
    let location = &desired.location;
    let is_local = matches!(location, Location::Local { .. });
    let (block, credentials) = store_fields(location);
    let in_block = |name: &str| Some(format!("spec.{block}.{name}"));
    match reason {
        "Credentials" | "Forbidden" => Some(credentials),
        "NoBucket" | "NotFound" | "Full" if is_local => in_block("persistentVolumeClaim"),
        "NoBucket" | "NotFound" | "OtherCluster" | "Exists" | "Full" => in_block("path"),
        "WrongRegion" => in_block("region"),
        "TlsUntrusted" | "Authority" => in_block("caSecret"),
        "Unreachable" | "NotAStore" | "TimedOut" if !is_local => in_block("endpoint"),
        "Deadline" | "DeadlineExceeded" | "TooSlow" => Some("spec.backupPolicy.timeoutInSecond".to_owned()),
        "Key" => Some(format!(
            "spec.encryption.secretRef (Secret {})",
            desired.encryption_secret.as_deref().unwrap_or_default()
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

/// The block of the store in the spec, and the field that names its credentials.
fn store_fields(location: &Location) -> (&'static str, String) {
    let credentials = |field: &str, secret: &Option<String>| match secret {
        Some(secret) => format!("spec.{field} (Secret {secret})"),
        None => format!("spec.{field} (not set: the platform's identity)"),
    };
    match location {
        Location::S3 { secret, .. } => ("s3", credentials("s3.awsSecret", secret)),
        Location::Abs { secret, .. } => ("abs", credentials("abs.absSecret", secret)),
        Location::Gcs { secret, .. } => ("gcs", credentials("gcs.gcpSecret", secret)),
        Location::Oss { secret, .. } => ("oss", credentials("oss.ossSecret", secret)),
        Location::Local { claim, .. } => (
            "local",
            format!("spec.local.persistentVolumeClaim (PersistentVolumeClaim {claim})"),
        ),
    }
}
