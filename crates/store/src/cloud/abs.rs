//! Creates a client for Azure Blob Storage from settings and from a Secret in the format of the older
//! operator.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};

use super::gcs::no_retries;
use super::{ABS_MARK, Cloud, Provider, Service, client_config_error};
use crate::backend::{Kind, Part, PendingUpload, StoreLocation};
use crate::error::Fault;
use crate::key::percent_encode;
use crate::platform::Platform;
use crate::secret::{InvalidConfig, Redactor, Secret};
use crate::trust::TrustedRoots;

const SECRET_SETTING: &str = "abs.absSecret";
const ACCOUNT: &str = "storage-account";
const KEY: &str = "storage-key";
const SAS: &str = "sas-token";
const CLOUD: &str = "cloud";

/// The configuration of an Azure container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbsConfig {
    /// The container.
    pub container: String,
    /// The endpoint including the storage account, if it is not the default endpoint of Azure.
    pub endpoint: Option<String>,
    /// A Secret with the private CA of the endpoint, in the key `ca.crt`.
    pub ca: Option<Secret>,
}

/// The Azure clouds: name, host name suffix, and authority host for identities.
const CLOUDS: [(&str, &str, &str); 4] = [
    (
        "AzurePublicCloud",
        "core.windows.net",
        "https://login.microsoftonline.com",
    ),
    (
        "AzureChinaCloud",
        "core.chinacloudapi.cn",
        "https://login.chinacloudapi.cn",
    ),
    (
        "AzureUSGovernmentCloud",
        "core.usgovcloudapi.net",
        "https://login.microsoftonline.us",
    ),
    (
        "AzureGermanCloud",
        "core.cloudapi.de",
        "https://login.microsoftonline.de",
    ),
];

impl Cloud {
    /// Creates a client without sending a request.
    pub fn abs(
        config: &AbsConfig,
        secret: Option<&Secret>,
        platform: &Platform,
    ) -> Result<Self, InvalidConfig> {
        let empty = Secret::default();
        let secret_data = secret.unwrap_or(&empty);
        let account = match (
            secret_data.text(SECRET_SETTING, ACCOUNT)?,
            platform.variable("AZURE_STORAGE_ACCOUNT"),
        ) {
            (Some(account), _) => account,
            (None, Some(account)) if secret.is_none() => account,
            (None, _) if secret.is_some() => secret_data.required(SECRET_SETTING, ACCOUNT)?,
            (None, _) => {
                let problem = "must be set and contain at least storage-account: the account is not configured elsewhere";
                return Err(InvalidConfig::new(SECRET_SETTING, problem));
            }
        };
        check_account(account)?;
        let (suffix, authority) = cloud_hosts(secret_data.text(SECRET_SETTING, CLOUD)?)?;
        let base = match &config.endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None => format!("https://{account}.blob.{suffix}"),
        };
        let trust = TrustedRoots::new("abs.caSecret", config.ca.as_ref())?;
        let builder = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_container_name(&config.container)
            .with_endpoint(base.clone())
            .with_allow_http(base.starts_with("http://"))
            .with_retry(no_retries());
        let (key, sas) = (
            secret_data.text(SECRET_SETTING, KEY)?,
            secret_data.text(SECRET_SETTING, SAS)?,
        );
        let redactor = Redactor::new(key.into_iter().chain(sas));
        let builder = match (key, sas) {
            (Some(_), Some(_)) => {
                let problem = format!("has both {KEY} and {SAS}: keep one of them");
                return Err(InvalidConfig::new(SECRET_SETTING, problem));
            }
            (Some(key), None) => builder.with_access_key(check_key(key)?),
            (None, Some(sas)) => builder.with_config(AzureConfigKey::SasKey, check_sas(sas)?),
            (None, None) => with_platform_identity(builder, platform, authority),
        };
        let service = Service::new(&trust, &base, redactor)?;
        let store: MicrosoftAzure = builder
            .with_http_connector(service.clone())
            .build()
            .map_err(|error| client_config_error(SECRET_SETTING, &error, &service))?;
        Ok(Self {
            objects: Arc::new(store.clone()),
            uploads: Arc::new(store.clone()),
            provider: Provider::Abs {
                store,
                base: format!("{base}/{}", percent_encode(&config.container, false)),
                account: account.to_owned(),
            },
            service,
            location: StoreLocation {
                kind: Kind::Abs,
                bucket: config.container.clone(),
                endpoint: base,
            },
        })
    }
}

impl Cloud {
    /// Commits the blocks of an upload as an object, with the upload token, which `object_store` cannot set.
    /// Only blocks of this upload count. If another upload of the same name is committed first, Azure
    /// discards them.
    pub(super) async fn commit_blocks(
        &self,
        base: &str,
        target: &PendingUpload,
        parts: &[Part],
    ) -> Result<(), Fault> {
        let mut list = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>".to_owned();
        for part in parts {
            list.push_str("<Uncommitted>");
            STANDARD.encode_string(&part.tag, &mut list);
            list.push_str("</Uncommitted>");
        }
        list.push_str("</BlockList>");
        let address = format!(
            "{base}/{}?comp=blocklist",
            percent_encode(target.key.as_str(), true)
        );
        let (length, mark) = (list.len().to_string(), format!("x-ms-meta-{ABS_MARK}"));
        let headers = [
            ("content-length", length.as_str()),
            ("x-ms-blob-content-type", "application/octet-stream"),
            (mark.as_str(), target.mark.0.as_str()),
        ];
        self.send(Method::PUT, &address, &headers, Bytes::from(list))
            .await
            .map(|_| ())
    }
}

/// Uses the workload identity if its variables are set, else the managed identity of the machine.
fn with_platform_identity(
    builder: MicrosoftAzureBuilder,
    platform: &Platform,
    authority: &str,
) -> MicrosoftAzureBuilder {
    let mut builder =
        builder.with_authority_host(platform.variable("AZURE_AUTHORITY_HOST").unwrap_or(authority));
    if let Some(client) = platform.variable("AZURE_CLIENT_ID") {
        builder = builder.with_client_id(client);
    }
    if let Some(tenant) = platform.variable("AZURE_TENANT_ID") {
        builder = builder.with_tenant_id(tenant);
    }
    if let Some(file) = platform.variable("AZURE_FEDERATED_TOKEN_FILE") {
        builder = builder.with_federated_token_file(file);
    }
    if let Some(metadata) = &platform.metadata {
        builder = builder.with_msi_endpoint(metadata);
    }
    builder
}

fn check_account(account: &str) -> Result<(), InvalidConfig> {
    let is_valid = (3..=24).contains(&account.len())
        && account
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if is_valid {
        return Ok(());
    }
    let problem = "must be 3 to 24 lower-case letters and digits; for example: mybackups";
    Err(InvalidConfig::new(
        format!("the key {ACCOUNT} of {SECRET_SETTING}"),
        problem,
    ))
}

fn check_key(key: &str) -> Result<&str, InvalidConfig> {
    match STANDARD.decode(key) {
        Ok(bytes) if !bytes.is_empty() => Ok(key),
        _ => {
            let problem = "is not an account key: it must be the Base64 text that Azure shows";
            Err(InvalidConfig::new(
                format!("the key {KEY} of {SECRET_SETTING}"),
                problem,
            ))
        }
    }
}

fn check_sas(sas: &str) -> Result<&str, InvalidConfig> {
    let sas = sas.trim_start_matches('?');
    if sas.split('&').any(|pair| pair.starts_with("sig=")) {
        return Ok(sas);
    }
    let problem = "is not a shared access signature: it must contain sig=, as in sv=…&sp=…&sig=…";
    Err(InvalidConfig::new(
        format!("the key {SAS} of {SECRET_SETTING}"),
        problem,
    ))
}

fn cloud_hosts(name: Option<&str>) -> Result<(&'static str, &'static str), InvalidConfig> {
    let name = match name.unwrap_or(CLOUDS[0].0) {
        // Short names, which the older operator accepts.
        name if name.eq_ignore_ascii_case("AzureCloud") => "AzurePublicCloud",
        name if name.eq_ignore_ascii_case("AzureUSGovernment") => "AzureUSGovernmentCloud",
        name => name,
    };
    let found = CLOUDS.iter().find(|(cloud, ..)| cloud.eq_ignore_ascii_case(name));
    found
        .map(|(_, suffix, authority)| (*suffix, *authority))
        .ok_or_else(|| {
            let names = CLOUDS.map(|(cloud, ..)| cloud).join(", ");
            InvalidConfig::new(
                format!("the key {CLOUD} of {SECRET_SETTING}"),
                format!("must be one of {names}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn made(pairs: &[(&str, &str)]) -> Result<Cloud, String> {
        let data: BTreeMap<String, Vec<u8>> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect();
        let config = AbsConfig {
            container: "c".into(),
            ..AbsConfig::default()
        };
        Cloud::abs(&config, Some(&Secret::from(data)), &Platform::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_cloud_has_its_host_names() {
        for (cloud, host) in [
            ("AzurePublicCloud", "https://acct.blob.core.windows.net"),
            ("AzureCloud", "https://acct.blob.core.windows.net"),
            ("AzureUSGovernment", "https://acct.blob.core.usgovcloudapi.net"),
            ("azurechinacloud", "https://acct.blob.core.chinacloudapi.cn"),
            (
                "AzureUSGovernmentCloud",
                "https://acct.blob.core.usgovcloudapi.net",
            ),
        ] {
            let pairs = [
                ("storage-account", "acct"),
                ("storage-key", "aHVudGVyMg=="),
                ("cloud", cloud),
            ];
            let backend = made(&pairs).expect("a client");
            assert_eq!(backend.location.endpoint, host);
            assert!(!format!("{backend:?}").contains("aHVudGVyMg"), "{backend:?}");
        }
    }

    #[test]
    fn an_unusable_secret_is_refused_by_key_without_its_content() {
        for (pairs, expected) in [
            (vec![("account", "hunter2")], "no key storage-account"),
            (vec![("storage-account", "Hunter2!")], "lower-case"),
            (
                vec![("storage-account", "acct"), ("storage-key", "hunter2!")],
                "storage-key",
            ),
            (
                vec![("storage-account", "acct"), ("sas-token", "hunter2")],
                "sas-token",
            ),
            (
                vec![
                    ("storage-account", "acct"),
                    ("storage-key", "aGk="),
                    ("sas-token", "sig=hunter2"),
                ],
                "keep one",
            ),
            (
                vec![("storage-account", "acct"), ("cloud", "Hunter2")],
                "AzureChinaCloud",
            ),
        ] {
            let message = made(&pairs).expect_err(expected);
            assert!(
                message.contains(expected) && !message.contains("unter2"),
                "{message}"
            );
        }
    }

    #[test]
    fn an_account_alone_selects_the_platform_identity() {
        made(&[("storage-account", "acct")]).expect("a client");
    }
}
