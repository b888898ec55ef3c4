//! Tests of plans against a small model of Kubernetes.

mod fake_kubernetes;
mod lost_node;
mod not_started;
mod postponed;
mod random_faults;
mod readiness;
mod reported;
mod runs;
