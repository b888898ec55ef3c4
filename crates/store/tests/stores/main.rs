//! Tests of the stores against in-process servers that inject faults. Tests against real servers are in
//! `e2e/tests/real_stores`.

mod conformance;
mod directory;
mod errors;
mod faults;
mod identities;
mod oss_signature;
mod quirks;
mod support;
mod tls;
