//! Lines about objects, names and mappings.

use super::{Agent, Done, Failure, number, wrong};
use commonhold::{
    Access, Coherence, CreateOptions, EntryInfo, Fixed, Inherit, MapFlags, MapOptions, ObjectInfo,
    OnLastDeath, OnLoss, PageSize, PageState, PagerKind, Protection, Sharing, SnapshotOptions, SyncMode,
    Translation,
};
use std::fs::File;
use std::os::fd::AsFd;

impl Agent {
    pub(super) fn on_objects(&mut self, words: &[&str]) -> Done {
        match words {
            ["create", object, name, options @ ..] => self.create(object, name, options),
            ["create-nameless", object, words @ ..] => {
                let made = self.host()?.create_nameless(&create_options(words)?.0)?;
                self.objects.insert((*object).to_owned(), made);
                Ok(String::new())
            }
            ["open", object, name, access] => {
                let opened = self.host()?.open(name, self::access(access))?;
                self.objects.insert((*object).to_owned(), opened);
                Ok(String::new())
            }
            ["snapshot", snapshot, object, name, words @ ..] => {
                let options = SnapshotOptions {
                    writable: words.contains(&"writable"),
                    whole: words.contains(&"whole"),
                    file: words.iter().find_map(|word| word.strip_prefix("file=")).map(Into::into),
                    mode: 0o666,
                    ..SnapshotOptions::default()
                };
                let made = self.object(object)?.snapshot(name, &options)?;
                self.objects.insert((*snapshot).to_owned(), made);
                Ok(String::new())
            }
            ["close", object] => Ok(self.objects.remove(*object).map_or("was not open", |_| "").to_owned()),
            ["map", mapping, object, wishes @ ..] => {
                let made = self.object(object)?.map(&map_options(wishes)?)?;
                self.mappings.insert((*mapping).to_owned(), made);
                Ok(String::new())
            }
            ["inherit", mapping, "all", how] => {
                self.mapping(mapping)?.inherit(inherit(how)?)?;
                Ok(String::new())
            }
            ["inherit", mapping, offset, length, how] => {
                let (offset, length) = (number(offset)? as usize, number(length)? as usize);
                self.mapping(mapping)?.inherit_range(offset, length, inherit(how)?)?;
                Ok(String::new())
            }
            ["map-many", object, length, offsets @ ..] => self.map_many(object, length, offsets),
            ["unmap", mapping, offset, length] => {
                self.mapping(mapping)?.unmap(number(offset)? as usize, number(length)? as usize)?;
                Ok(String::new())
            }
            ["drop", mapping] => {
                Ok(self.mappings.remove(*mapping).map_or("was not mapped", |_| "").to_owned())
            }
            ["address", mapping] => Ok((self.mapping(mapping)?.as_ptr() as usize).to_string()),
            [verb, object, offset, length] if RANGES.contains(verb) => {
                self.on_range(verb, object, number(offset)?, number(length)?)
            }
            _ => self.on_names(words),
        }
    }

    fn on_range(&self, verb: &str, object: &str, offset: u64, length: u64) -> Done {
        let object = self.object(object)?;
        Ok(match verb {
            "sync" => object.sync(offset, length)?.to_string(),
            "freeze" => object.sync_frozen(offset, length)?.to_string(),
            "lock" => object.lock(offset, length)?.to_string(),
            "unlock" => object.unlock(offset, length).map(|()| String::new())?,
            "prefetch" => object.prefetch(offset, length).map(|()| String::new())?,
            _ => object.incore(offset, length)?.into_iter().map(letter).collect(),
        })
    }

    fn on_names(&mut self, words: &[&str]) -> Done {
        let host = self.host()?;
        match words {
            ["revert", name] => return Ok(host.revert(name)?.to_string()),
            ["remove", name] => host.remove(name)?,
            ["rename", from, to] => host.rename(from, to)?,
            ["chmod", name, mode] => {
                host.set_mode(name, u32::from_str_radix(mode, 8).map_err(|e| wrong(e.to_string()))?)?;
            }
            ["chown", name, uid, gid] => {
                let id = |word: &str| (word != "-").then(|| number(word)).transpose();
                host.set_owner(name, id(uid)?.map(|n| n as u32), id(gid)?.map(|n| n as u32))?;
            }
            ["resize", name, size] => host.resize(name, number(size)?)?,
            ["stop", force] => host.stop(*force == "force")?,
            ["list", name] => {
                let entries = host.list(name)?;
                let names: Vec<String> =
                    entries.iter().filter_map(|entry| Some(entry.name()?.to_string())).collect();
                return Ok(names.join(" "));
            }
            ["stat", name, what] => {
                return match host.stat(name)? {
                    EntryInfo::Object(info) => field(&info, what),
                    EntryInfo::Directory { ownership, .. } => {
                        Ok(format!("directory {} {} {:o}", ownership.uid, ownership.gid, ownership.mode))
                    }
                };
            }
            ["info", object, what] => return field(&self.object(object)?.info()?, what),
            _ => return Err(wrong(format!("what is {words:?}?"))),
        }
        Ok(String::new())
    }

    fn create(&mut self, object: &str, name: &str, words: &[&str]) -> Done {
        let (options, file) = create_options(words)?;
        let made = self.host()?.create(name, &options, file.as_ref().map(AsFd::as_fd))?;
        self.objects.insert(object.to_owned(), made);
        Ok(String::new())
    }

    fn map_many(&mut self, object: &str, length: &str, offsets: &[&str]) -> Done {
        let wishes: Result<Vec<MapOptions>, Failure> =
            offsets.iter().map(|offset| map_options(&["rw", "shared", offset, length])).collect();
        let made = self.object(object)?.map_many(&wishes?)?;
        for (index, mapping) in made.into_iter().enumerate() {
            self.mappings.insert(format!("many{index}"), mapping);
        }
        Ok(String::new())
    }
}

const RANGES: [&str; 6] = ["sync", "freeze", "lock", "unlock", "prefetch", "incore"];

/// I, A, C, D, L: invalid, absent, clean, dirty, lost; lower case where locked.
fn letter((state, locked): (PageState, bool)) -> char {
    let letter = match state {
        PageState::Invalid => 'I',
        PageState::Absent => 'A',
        PageState::Clean => 'C',
        PageState::Dirty => 'D',
        PageState::Lost => 'L',
    };
    if locked { letter.to_ascii_lowercase() } else { letter }
}

fn field(info: &ObjectInfo, what: &str) -> Done {
    Ok(match what {
        "size" => info.options.size_bytes.to_string(),
        "resident" => info.resident_bytes.to_string(),
        "dirty" => info.dirty_bytes.to_string(),
        "spilled" => info.spilled_bytes.to_string(),
        "mappings" => info.mappings.to_string(),
        "opens" => info.opens.to_string(),
        "owner" => format!("{} {} {:o}", info.ownership.uid, info.ownership.gid, info.ownership.mode),
        "name" => info.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        "charged" => info.charged_to.clone(),
        "warning" => info.warning.clone(),
        "home" => format!("{}{}", info.home, if info.is_elsewhere { " elsewhere" } else { "" }),
        "losses" => format!("{} {}", info.losses.lost_pages, info.losses.reverted_pages),
        "generation" => info.losses.generation.to_string(),
        "page-tables" => info.page_tables.to_string(),
        "place" => {
            info.place.map_or_else(|| "-".to_owned(), |at| format!("{} {}", at.arena.0, at.offset_bytes))
        }
        "id" => info.id.0.to_string(),
        "description" => info.options.description.clone(),
        "address" => info.options.fixed.map_or_else(|| "-".to_owned(), |fixed| fixed.address.to_string()),
        "page-size" => info.options.page_size.bytes().to_string(),
        _ => return Err(wrong(format!("no field {what}"))),
    })
}

pub(super) fn access(word: &str) -> Access {
    if word == "r" { Access::Read } else { Access::ReadWrite }
}

fn on_loss(value: &str) -> OnLoss {
    if value == "revert" { OnLoss::Revert } else { OnLoss::Error }
}

fn create_options(words: &[&str]) -> Result<(CreateOptions, Option<File>), Failure> {
    let mut options = CreateOptions::default();
    let (mut file, mut strict, mut hold_us) = (None, None, None);
    for word in words.iter().filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "size" => options.size_bytes = number(value)?,
            "file" | "file-ro" => {
                file = Some(File::options().read(true).write(key == "file").open(value)?);
                options.pager = PagerKind::File;
            }
            "pager" => options.pager = PagerKind::External { pager: value.to_owned() },
            "sync" => {
                options.sync = match value {
                    "atomic" => SyncMode::Atomic,
                    "ordered" => SyncMode::Ordered,
                    _ => SyncMode::Plain,
                };
            }
            "controlled" => options.controlled = true,
            "freezable" => options.freezable = true,
            "strict" => strict = Some(on_loss(value)),
            "forwarding" => options.coherence = Coherence::strict(on_loss(value)),
            "central" => options.coherence = Coherence::central(on_loss(value)),
            "hold-us" => hold_us = Some(number(value)? as u32),
            "explicit" => options.coherence = Coherence::Explicit,
            "page-size" => options.page_size = PageSize::new(number(value)?)?,
            "shared-tables" => options.translation = Translation::SharedTables,
            "wired" => options.translation = Translation::Wired,
            "shared-tables-4k" => options.translation = Translation::SharedTables4K,
            "fixed" => options.fixed = Some(Fixed::asked(if value.is_empty() { 0 } else { number(value)? })),
            "home-moves" => options.home_moves = true,
            "replicas" => options.replicas = number(value)? as u32,
            "reserve" => options.reserve = Some(value == "yes"),
            "ephemeral" => options.ephemeral_ms = Some(number(value)? as u32),
            "death" if value == "revert" => options.on_last_death = OnLastDeath::Revert,
            "death" => options.on_last_death = OnLastDeath::Keep,
            "budget" => options.budget_bytes = Some(number(value)?),
            "fault-deadline" => options.fault_deadline_ms = Some(number(value)? as u32),
            "pager-deadline" => options.pager_deadline_ms = Some(number(value)? as u32),
            "mode" => options.mode = u32::from_str_radix(value, 8).map_err(|e| wrong(e.to_string()))?,
            "description" => options.description = value.to_owned(),
            _ => return Err(wrong(format!("no option {word}"))),
        }
    }
    if let Some(on_loss) = strict {
        options = options.strict(on_loss);
    }
    if let Some(hold_us) = hold_us {
        options.coherence = options.coherence.with_hold(hold_us);
    }
    Ok((options, file))
}

fn inherit(how: &str) -> Result<Inherit, Failure> {
    match how {
        "share" => Ok(Inherit::Share),
        "copy" => Ok(Inherit::Copy),
        "none" => Ok(Inherit::None),
        _ => Err(wrong(format!("no inheritance {how}"))),
    }
}

fn map_options(words: &[&str]) -> Result<MapOptions, Failure> {
    let [protection, sharing, offset, length, flags @ ..] = words else {
        return Err(wrong("map M O r|rw shared|private offset length"));
    };
    let mut options = MapOptions {
        offset: number(offset)?,
        length: Some(number(length)?).filter(|length| *length > 0),
        protection: if *protection == "r" { Protection::Read } else { Protection::ReadWrite },
        sharing: if *sharing == "private" { Sharing::Private } else { Sharing::Shared },
        ..MapOptions::default()
    };
    let mut wishes = MapFlags::default();
    for flag in flags {
        match flag.split_once('=').unwrap_or((flag, "")) {
            ("fixed", address) => {
                wishes.fixed = true;
                options.hint = number(address)? as usize;
            }
            ("hint", address) => options.hint = number(address)? as usize,
            // A length of zero, which else means all.
            ("empty", _) => options.length = Some(0),
            ("lock", _) => wishes.lock = true,
            ("prefetch", _) => wishes.prefetch = true,
            ("in-thread", _) => wishes.in_thread = true,
            ("anywhere", _) => wishes.anywhere = true,
            ("own-tables", _) => wishes.own_tables = true,
            ("inherit", how) => options.inherit = inherit(how)?,
            _ => return Err(wrong(format!("no wish {flag}"))),
        }
    }
    options.flags = wishes;
    Ok(options)
}
