//! Making the authority, and certificates of hosts.

use super::files::{CERTIFICATE_FILE, KEY_FILE, make_directory, write_new};
use crate::certificate::{PeerRights, Role, Subject, check_host_name};
use crate::identity::{self, read_certificate, read_key};
use crate::tls::Credentials;
use crate::verify::fingerprint;
use crate::{hex, random};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Certificates are valid from a day before they are made: clocks differ.
const EARLIER: Duration = Duration::from_secs(86_400);
const AUTHORITY_YEARS: u64 = 20;
const DAY: u64 = 86_400;

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// Not before.
    pub from: SystemTime,
    /// Not after.
    pub until: SystemTime,
}

impl Validity {
    /// From now for so long, with a day before for clocks that are behind.
    pub fn of(time: Duration) -> Validity {
        let now = SystemTime::now();
        Validity { from: now - EARLIER, until: now + time }
    }
}

/// A certificate that was made.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate, PEM.
    pub certificate: String,
    /// The authority's, PEM.
    pub authority: String,
}

/// The authority of a cluster.
pub struct Authority {
    directory: PathBuf,
    cluster: [u8; 16],
    certificate: CertificateDer<'static>,
    /// The same, PEM.
    text: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes one for a new cluster.
    pub fn init(directory: &Path) -> Result<Authority> {
        make_directory(directory)?;
        let cluster = random::bytes::<16>()?;
        let key = new_key()?;
        let mut params = authority_params(&cluster);
        set_validity(&mut params, Validity::of(Duration::from_secs(AUTHORITY_YEARS * 365 * DAY)));
        params.serial_number = Some(SerialNumber::from_slice(&random::bytes::<16>()?));
        let certificate = params.self_signed(&key).map_err(making)?;
        // The certificate last: who finds it finds the key as well.
        write_new(&directory.join(KEY_FILE), key.serialize_pem().as_bytes(), 0o600)?;
        write_new(&directory.join(CERTIFICATE_FILE), certificate.pem().as_bytes(), 0o644)?;
        Self::load(directory)
    }

    /// The one in a directory.
    pub fn load(directory: &Path) -> Result<Authority> {
        let path = directory.join(CERTIFICATE_FILE);
        if !path.exists() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no authority in {}: `commonhold ca init` makes one", directory.display()),
            ));
        }
        let certificate = read_certificate(&path)?;
        let text = std::fs::read_to_string(&path).doing(format!("reading {}", path.display()))?;
        let cluster = Subject::of(&certificate)?.cluster;
        let PrivateKeyDer::Pkcs8(key) = read_key(&directory.join(KEY_FILE))? else {
            return Err(Error::invalid(format!(
                "the key in {} is not one that `ca init` made",
                directory.display()
            )));
        };
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).map_err(making)?;
        let issuer = Issuer::new(authority_params(&cluster), key);
        Ok(Authority { directory: directory.to_owned(), cluster, certificate, text, issuer })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its cluster.
    pub fn cluster(&self) -> [u8; 16] {
        self.cluster
    }

    /// SHA-256 of its certificate: what newcomers know it by.
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// Registers a host, and gives it key and certificate. A name that has a certificate is refused unless it is to be
    /// renewed.
    pub fn enroll(
        &self,
        into: &Path,
        name: &str,
        rights: PeerRights,
        validity: Validity,
        renew: bool,
    ) -> Result<()> {
        check_host_name(name)?;
        prepare_identity(into)?;
        self.register(name, rights, renew)?;
        self.issue_into(into, name, rights, validity)
    }

    /// Makes key and certificate of a host, and writes them, with the authority's certificate, into a directory.
    pub fn issue_into(&self, into: &Path, name: &str, rights: PeerRights, validity: Validity) -> Result<()> {
        check_host_name(name)?;
        let key = new_key()?;
        let issued = self.issue(name, rights, validity, &key)?;
        write_identity(into, &key.serialize_pem(), &issued)
    }

    /// Makes a certificate for a host's key.
    pub fn issue(
        &self,
        name: &str,
        rights: PeerRights,
        validity: Validity,
        key: &impl PublicKeyData,
    ) -> Result<Issued> {
        check_host_name(name)?;
        let both = [ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = self.certify(Role::Host(name.to_owned(), rights), name, &both, validity, key)?;
        Ok(Issued { certificate: certificate.pem(), authority: self.text.clone() })
    }

    /// What the service for newcomers shows them: no host has it.
    pub(crate) fn service(&self) -> Result<Credentials> {
        let key = new_key()?;
        let usage = [ExtendedKeyUsagePurpose::ServerAuth];
        let validity = Validity::of(Duration::from_secs(DAY));
        let certificate = self.certify(Role::Authority, "authority", &usage, validity, &key)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Credentials { chain: vec![certificate.into(), self.certificate.clone()], key })
    }

    fn certify(
        &self,
        role: Role,
        name: &str,
        usage: &[ExtendedKeyUsagePurpose],
        validity: Validity,
        key: &impl PublicKeyData,
    ) -> Result<Certificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.subject_alt_names = vec![uri(&Subject { cluster: self.cluster, role })?];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usage.to_vec();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(&random::bytes::<16>()?));
        set_validity(&mut params, validity);
        params.signed_by(key, &self.issuer).map_err(making)
    }
}

/// Readies a directory for a host's identity; refused if it has one.
pub fn prepare_identity(directory: &Path) -> Result<()> {
    make_directory(directory)?;
    let certificate = directory.join(identity::CERTIFICATE_FILE);
    if certificate.exists() {
        let words = format!(
            "{} is there already, and is not replaced: remove it, or name another directory (--into)",
            certificate.display()
        );
        return Err(Error::new(ErrorKind::Exists, words));
    }
    Ok(())
}

/// Writes a host's identity into a directory that has none.
pub fn write_identity(directory: &Path, key: &str, issued: &Issued) -> Result<()> {
    prepare_identity(directory)?;
    for (file, text, mode) in [
        (identity::KEY_FILE, key, 0o600),
        (identity::AUTHORITY_FILE, &issued.authority, 0o644),
        (identity::CERTIFICATE_FILE, &issued.certificate, 0o644),
    ] {
        let path = directory.join(file);
        // Left by a try that did not get to its end.
        let _ = std::fs::remove_file(&path);
        write_new(&path, text.as_bytes(), mode)?;
    }
    Ok(())
}

/// A new key of the kind that all have.
pub fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(making)
}

fn authority_params(cluster: &[u8; 16]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("commonhold cluster {}", hex::encode(cluster)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Its own word for its role: also how the cluster is read back. It cannot fail: the text is ASCII.
    params.subject_alt_names =
        uri(&Subject { cluster: *cluster, role: Role::Authority }).into_iter().collect();
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn uri(subject: &Subject) -> Result<SanType> {
    subject.to_uri().try_into().map(SanType::URI).map_err(making)
}

fn set_validity(params: &mut CertificateParams, validity: Validity) {
    params.not_before = validity.from.into();
    params.not_after = validity.until.into();
}

fn making(error: rcgen::Error) -> Error {
    Error::invalid(format!("a certificate cannot be made: {error}"))
}
