//! Creates a client for Google Cloud Storage from settings and from a Secret in the format of the older
//! operator.

use std::sync::Arc;

use object_store::gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder};
use object_store::{RetryConfig, StaticCredentialProvider};
use serde::Deserialize;

use super::{Cloud, Provider, Service, client_config_error};
use crate::backend::{Kind, StoreLocation};
use crate::key::percent_encode;
use crate::platform::Platform;
use crate::secret::{InvalidConfig, Redactor, Secret};
use crate::trust::TrustedRoots;

const SECRET_SETTING: &str = "gcs.gcpSecret";
const TOKEN: &str = "access-token";
const ACCOUNT: &str = "credentials.json";
const BASE: &str = "https://storage.googleapis.com";

/// The configuration of a GCS bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcsConfig {
    /// The bucket.
    pub bucket: String,
    /// The endpoint, if it is not the default endpoint of Google.
    pub endpoint: Option<String>,
    /// A Secret with the private CA of the endpoint, in the key `ca.crt`.
    pub ca: Option<Secret>,
}

#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    client_email: Option<String>,
    private_key: Option<String>,
}

impl Cloud {
    /// Creates a client without sending a request.
    pub fn gcs(
        config: &GcsConfig,
        secret: Option<&Secret>,
        platform: &Platform,
    ) -> Result<Self, InvalidConfig> {
        let base = config.endpoint.as_deref().unwrap_or(BASE).trim_end_matches('/');
        let trust = TrustedRoots::new("gcs.caSecret", config.ca.as_ref())?;
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&config.bucket)
            .with_base_url(base)
            .with_retry(no_retries());
        let mut redactor = Redactor::default();
        match secret {
            Some(secret) => {
                let token = secret.text(SECRET_SETTING, TOKEN)?;
                let account = secret.text(SECRET_SETTING, ACCOUNT)?;
                builder = match (token, account) {
                    (Some(_), Some(_)) => {
                        let problem = format!("has both {TOKEN} and {ACCOUNT}: keep one of them");
                        return Err(InvalidConfig::new(SECRET_SETTING, problem));
                    }
                    (Some(token), None) => {
                        redactor = Redactor::new([token]);
                        let bearer = token.to_owned();
                        let fixed = StaticCredentialProvider::new(GcpCredential { bearer });
                        builder.with_credentials(Arc::new(fixed))
                    }
                    (None, Some(account)) => {
                        redactor = Redactor::new([check_service_account(account)?.as_str()]);
                        builder.with_service_account_key(account)
                    }
                    (None, None) => {
                        secret.required(SECRET_SETTING, ACCOUNT)?;
                        builder
                    }
                };
            }
            None => {
                if let Some(file) = platform.variable("GOOGLE_APPLICATION_CREDENTIALS") {
                    builder = builder.with_application_credentials(file);
                }
            }
        }
        let service = Service::new(&trust, base, redactor)?;
        let store: GoogleCloudStorage =
            builder
                .with_http_connector(service.clone())
                .build()
                .map_err(|error| {
                    client_config_error(
                        &format!("the key {ACCOUNT} of {SECRET_SETTING}"),
                        &error,
                        &service,
                    )
                })?;
        Ok(Self {
            objects: Arc::new(store.clone()),
            uploads: Arc::new(store.clone()),
            provider: Provider::Gcs {
                store,
                base: format!("{base}/{}", percent_encode(&config.bucket, false)),
            },
            service,
            location: StoreLocation {
                kind: Kind::Gcs,
                bucket: config.bucket.clone(),
                endpoint: config.endpoint.clone().unwrap_or_default(),
            },
        })
    }
}

/// Validates the key file of a service account and returns its private key.
fn check_service_account(account: &str) -> Result<String, InvalidConfig> {
    let bad = |problem: String| InvalidConfig::new(format!("the key {ACCOUNT} of {SECRET_SETTING}"), problem);
    let file: KeyFile = serde_json::from_str(account)
        .map_err(|_| bad("is not JSON; it must be a service account's key file".into()))?;
    match file.kind.as_deref() {
        Some("service_account") | None => {}
        Some(kind) => {
            let problem =
                format!("is of type {kind}; it must be a service account's key file (type service_account)");
            return Err(bad(problem));
        }
    }
    if file.client_email.is_none_or(|email| email.is_empty()) {
        return Err(bad(
            "has no client_email; it must be a service account's key file".into(),
        ));
    }
    match file.private_key {
        Some(key) if key.contains("PRIVATE KEY") => Ok(key),
        _ => Err(bad(
            "has no private_key in PEM; it must be a service account's key file".into(),
        )),
    }
}

/// Disables the retries of `object_store`, because [`crate::Store`] retries.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn refused(pairs: &[(&str, &str)]) -> String {
        let data: BTreeMap<String, Vec<u8>> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect();
        let config = GcsConfig {
            bucket: "b".into(),
            ..GcsConfig::default()
        };
        Cloud::gcs(&config, Some(&Secret::from(data)), &Platform::default())
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn an_unusable_secret_is_refused_by_key_without_its_content() {
        let account = "{\"type\":\"service_account\",\"client_email\":\"a@b\",\"private_key\":\"hunter2\"}";
        let broken = "{\"type\":\"service_account\",\"client_email\":\"a@b\",\"private_key_id\":\"1\",\"private_key\":\"-----BEGIN PRIVATE KEY-----\\nhunter2hunter2\\n-----END PRIVATE KEY-----\\n\"}";
        for (pairs, expected) in [
            (vec![("token", "hunter2")], "no key credentials.json"),
            (
                vec![("access-token", "hunter2"), ("credentials.json", "{}")],
                "keep one",
            ),
            (vec![("credentials.json", "hunter2")], "not JSON"),
            (
                vec![("credentials.json", "{\"type\":\"authorized_user\"}")],
                "type authorized_user",
            ),
            (
                vec![("credentials.json", "{\"client_email\":\"\"}")],
                "client_email",
            ),
            (vec![("credentials.json", account)], "private_key"),
            (vec![("credentials.json", broken)], "credentials.json"),
        ] {
            let message = refused(&pairs);
            assert!(
                message.contains(expected) && !message.contains("hunter2"),
                "{message}"
            );
        }
    }
}
