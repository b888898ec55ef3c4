//! Tests for stores: conformance checks that every store must pass, a backend that injects faults, and
//! in-process servers for each protocol. Built only with the feature `testing`. Like tests, it panics if a
//! check fails.

pub mod conformance;
pub mod fake;
pub mod fault_injector;
pub mod faults;

pub use conformance::{CHECKS, Check, MissingFeature, StoreUnderTest, check_all};
pub use fault_injector::FaultInjector;
pub use faults::{InjectedFault, Occurrence, UploadPhase};
