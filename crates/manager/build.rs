//! Passes commit and compiler version to the binary, and sets linker flags.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A static PIE binary applies about 100,000 relocations at start. Packed relative relocations take a few dozen KB instead
    // of 1.5 MB of the image. They require glibc 2.36, which is linked statically.
    let is_gnu = |name| std::env::var_os(name).is_some_and(|value| value == "gnu");
    if is_gnu("CARGO_CFG_TARGET_ENV") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let head = output("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(path) = head.filter(|path| std::path::Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rust = output(rustc, &["--version"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=ETCD_OPERATOR_COMMIT={commit}");
    println!("cargo::rustc-env=ETCD_OPERATOR_RUST={rust}");
}

/// The output of a command; `None` if it fails, for example because a source archive has no git repository.
fn output(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Option<String> {
    let run = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(run.stdout).ok()?.trim().to_owned();
    (run.status.success() && !text.is_empty()).then_some(text)
}
