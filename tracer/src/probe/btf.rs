//! A reader of BTF, the kernel's own description of its types (`Documentation/bpf/btf.rst`): where members of structures
//! lie, how many parameters a tracepoint has, which values an enumeration names.
//!
//! Own code since no crate on crates.io answers these questions safely: `btf` and `btfparse` keep one of several types
//! of the same name, `btf-rs` does not but is LGPL, and aya's `Btf` shows no members.

use std::collections::HashMap;

/// Why a BTF blob cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not start with BTF's magic number.
    #[error(
        "this is not little-endian BTF (it starts with {0:02x?}); the kernel's own lies in /sys/kernel/btf/vmlinux"
    )]
    Magic([u8; 2]),
    /// A part of it lies beyond its end, or refers to what is not there.
    #[error("the BTF is damaged or cut short: {0}; read /sys/kernel/btf/vmlinux again")]
    Damaged(&'static str),
    /// A kind of type that this reader does not know, so that it cannot tell where the next one starts.
    #[error("the BTF has a type of kind {0}, which this version of gpustall does not know; a newer version may")]
    UnknownKind(u32),
}

/// `BTF_KIND_*` of `include/uapi/linux/btf.h`.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const CONST: u32 = 10;
    pub const VOLATILE: u32 = 9;
    pub const RESTRICT: u32 = 11;
    pub const FUNC_PROTO: u32 = 13;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// Longest chain of typedefs and qualifiers, and deepest nesting of anonymous members, that is followed.
const MAX_DEPTH: u32 = 32;
/// Members looked at in one search. The largest kernel structure has about 300; only damaged BTF reaches this.
const MAX_STEPS: u32 = 100_000;

/// A type's number. 0 is `void`.
pub type TypeId = u32;

/// Where a member lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Distance from the start of the structure, in bits.
    pub bit: u32,
    /// Width of a bit-field; `None` for an ordinary member.
    pub width: Option<u32>,
    /// Its type.
    pub ty: TypeId,
}

/// The types of one BTF blob.
pub struct Btf<'a> {
    data: &'a [u8],
    strings: &'a [u8],
    /// Where each type starts in `data`; the place of `void` is not used.
    types: Vec<usize>,
    /// Ids of named structures, unions, enumerations and typedefs; several may have one name.
    names: HashMap<&'a [u8], Vec<TypeId>>,
}

impl<'a> Btf<'a> {
    /// Finds all types of `data`, a whole BTF blob such as `/sys/kernel/btf/vmlinux`.
    pub fn parse(data: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        match data.get(..2) {
            Some([0x9f, 0xeb]) => {}
            Some([a, b]) => return Err(BtfError::Magic([*a, *b])),
            _ => return Err(BtfError::Damaged("it is empty")),
        }
        let head = |at| word(data, at).ok_or(BtfError::Damaged("its header is incomplete"));
        let header = head(4)? as usize;
        let section = |off: u32, len: u32, what| {
            let start = header.checked_add(off as usize).ok_or(BtfError::Damaged(what))?;
            let end = start.checked_add(len as usize).filter(|e| *e <= data.len()).ok_or(BtfError::Damaged(what))?;
            Ok((start, end))
        };
        let (mut at, end) = section(head(8)?, head(12)?, "its types lie beyond its end")?;
        let (s, e) = section(head(16)?, head(20)?, "its names lie beyond its end")?;
        let mut btf = Btf { data, strings: &data[s..e], types: vec![0], names: HashMap::new() };
        while at < end {
            let info = word(data, at + 4).ok_or(BtfError::Damaged("its last type is incomplete"))?;
            let (kind, n) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let name = btf.string(word(data, at).unwrap_or(0))?;
            if matches!(kind, kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::TYPEDEF)
                && !name.is_empty()
            {
                btf.names.entry(name).or_default().push(btf.types.len() as TypeId);
            }
            btf.types.push(at);
            at += 12
                + match kind {
                    kind::INT | 14 | 17 => 4,
                    3 => 12,
                    kind::STRUCT | kind::UNION | 15 | kind::ENUM64 => 12 * n,
                    kind::ENUM | kind::FUNC_PROTO => 8 * n,
                    kind::PTR | 7..=12 | 16 | kind::TYPE_TAG => 0,
                    unknown => return Err(BtfError::UnknownKind(unknown)),
                };
        }
        if at > end {
            return Err(BtfError::Damaged("its last type is incomplete"));
        }
        Ok(btf)
    }

    /// All structures of this name.
    pub fn structs(&self, name: &str) -> impl Iterator<Item = TypeId> {
        self.named(name, kind::STRUCT)
    }

    /// Size in bytes of the first union of this name.
    pub fn union_size(&self, name: &str) -> Option<u32> {
        self.size(self.named(name, kind::UNION).next()?)
    }

    /// Size in bytes of a structure or union.
    pub fn size(&self, id: TypeId) -> Option<u32> {
        let at = self.place(id)?;
        matches!(self.kind(at), kind::STRUCT | kind::UNION).then(|| self.word(at + 8))
    }

    /// Whether an enumeration of this name has this value's name.
    pub fn enum_has(&self, name: &str, value: &str) -> bool {
        let wide = self.named(name, kind::ENUM64).map(|id| (id, 12));
        self.named(name, kind::ENUM).map(|id| (id, 8)).chain(wide).any(|(id, step)| {
            self.place(id).is_some_and(|at| {
                (0..self.count(at)).any(|i| self.string(self.word(at + 12 + step * i)) == Ok(value.as_bytes()))
            })
        })
    }

    /// A member of a structure or union by its path (`["f_path", "dentry"]` is `f_path.dentry`), also inside anonymous
    /// members and members whose type hides behind typedefs and qualifiers.
    pub fn member(&self, id: TypeId, path: &[&str]) -> Option<Member> {
        let mut steps = MAX_STEPS;
        let mut found = Member { bit: 0, width: None, ty: id };
        for name in path {
            let inner = self.search(found.ty, name.as_bytes(), MAX_DEPTH, &mut steps)?;
            found = Member { bit: found.bit.checked_add(inner.bit)?, ..inner };
        }
        Some(found)
    }

    /// Names of the structures that the parameters of a tracepoint point to (empty for anything else), without the
    /// leading private data pointer: `typedef void (*btf_trace_NAME)(void *, …)`.
    pub fn tracepoint(&self, name: &str) -> Option<Vec<&'a [u8]>> {
        let id = self.named(&format!("btf_trace_{name}"), kind::TYPEDEF).next()?;
        let pointer = self.strip(self.place(id)?)?;
        let proto = (self.kind(pointer) == kind::PTR).then(|| self.place(self.word(pointer + 8))).flatten()?;
        if self.kind(proto) != kind::FUNC_PROTO {
            return None;
        }
        let target = |ty| {
            let p = self.strip(self.place(ty)?).filter(|p| self.kind(*p) == kind::PTR)?;
            let to = self.strip(self.place(self.word(p + 8))?)?;
            self.string(self.word(to)).ok()
        };
        Some((1..self.count(proto)).map(|i| target(self.word(proto + 16 + 8 * i)).unwrap_or(&[])).collect())
    }

    fn search(&self, id: TypeId, name: &[u8], depth: u32, steps: &mut u32) -> Option<Member> {
        let at = self.strip(self.place(id)?)?;
        if depth == 0 || !matches!(self.kind(at), kind::STRUCT | kind::UNION) {
            return None;
        }
        let bit_fields = self.word(at + 4) >> 31 != 0;
        for i in 0..self.count(at) {
            *steps = steps.checked_sub(1)?;
            let m = at + 12 + 12 * i;
            let (ty, place) = (self.word(m + 4), self.word(m + 8));
            let (bit, width) = if bit_fields {
                (place & 0xff_ffff, Some(place >> 24).filter(|w| *w != 0))
            } else {
                self.old_bits(ty, place)
            };
            let own = self.string(self.word(m)).ok()?;
            if own == name {
                return Some(Member { bit, width, ty });
            }
            if own.is_empty()
                && let Some(inner) = self.search(ty, name, depth - 1, steps)
            {
                return Some(Member { bit: bit.checked_add(inner.bit)?, ..inner });
            }
        }
        None
    }

    /// Place and width of a member of a structure without the kind flag, where a bit-field is an integer type of odd
    /// width.
    fn old_bits(&self, ty: TypeId, bit: u32) -> (u32, Option<u32>) {
        match self.place(ty).and_then(|p| self.strip(p)) {
            Some(at) if self.kind(at) == kind::INT => {
                let encoding = self.word(at + 12);
                let (skip, width) = ((encoding >> 16) & 0xff, encoding & 0xff);
                let whole = skip == 0 && Some(width) == self.word(at + 8).checked_mul(8);
                (bit.saturating_add(skip), (!whole).then_some(width))
            }
            _ => (bit, None),
        }
    }

    /// Follows typedefs and qualifiers.
    fn strip(&self, mut at: usize) -> Option<usize> {
        for _ in 0..MAX_DEPTH {
            match self.kind(at) {
                kind::TYPEDEF | kind::CONST | kind::VOLATILE | kind::RESTRICT | kind::TYPE_TAG => {
                    at = self.place(self.word(at + 8))?;
                }
                _ => return Some(at),
            }
        }
        None
    }

    fn named(&self, name: &str, kind: u32) -> impl Iterator<Item = TypeId> {
        let ids = self.names.get(name.as_bytes()).map_or(&[][..], Vec::as_slice);
        ids.iter().copied().filter(move |id| self.place(*id).is_some_and(|at| self.kind(at) == kind))
    }

    /// Where a type starts; none for `void` and for numbers without a type.
    fn place(&self, id: TypeId) -> Option<usize> {
        if id == 0 { None } else { self.types.get(id as usize).copied() }
    }

    fn kind(&self, at: usize) -> u32 {
        (self.word(at + 4) >> 24) & 0x1f
    }

    fn count(&self, at: usize) -> usize {
        (self.word(at + 4) & 0xffff) as usize
    }

    /// A word inside a type; `parse` made sure that all of them lie inside the blob.
    fn word(&self, at: usize) -> u32 {
        word(self.data, at).unwrap_or(0)
    }

    fn string(&self, at: u32) -> Result<&'a [u8], BtfError> {
        let damaged = BtfError::Damaged("a name lies beyond its end");
        let rest = self.strings.get(at as usize..).filter(|r| !r.is_empty());
        let Some(rest) = rest else { return if at == 0 { Ok(&[]) } else { Err(damaged) } };
        rest.iter().position(|c| *c == 0).map(|end| &rest[..end]).ok_or(damaged)
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Builds BTF blobs type by type.
    #[derive(Default)]
    pub struct Blob {
        types: Vec<u8>,
        strings: Vec<u8>,
        count: u32,
    }

    impl Blob {
        pub fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if name.is_empty() {
                return 0;
            }
            let at = self.strings.len() as u32;
            self.strings.extend(name.as_bytes());
            self.strings.push(0);
            at
        }

        pub fn add(&mut self, name: &str, info: u32, size_or_type: u32, rest: &[u32]) -> TypeId {
            let name = self.name(name);
            for w in [name, info, size_or_type].iter().chain(rest) {
                self.types.extend(w.to_le_bytes());
            }
            self.count += 1;
            self.count
        }

        pub fn int(&mut self, name: &str, bytes: u32) -> TypeId {
            self.add(name, kind::INT << 24, bytes, &[bytes * 8])
        }

        pub fn composite(
            &mut self,
            kind: u32,
            flag: bool,
            name: &str,
            size: u32,
            members: &[(&str, TypeId, u32)],
        ) -> TypeId {
            let mut words = vec![];
            for (n, ty, place) in members {
                words.extend([self.name(n), *ty, *place]);
            }
            self.add(name, kind << 24 | (flag as u32) << 31 | members.len() as u32, size, &words)
        }

        pub fn structure(&mut self, name: &str, size: u32, members: &[(&str, TypeId, u32)]) -> TypeId {
            self.composite(kind::STRUCT, false, name, size, members)
        }

        pub fn pointer(&mut self, to: TypeId) -> TypeId {
            self.add("", kind::PTR << 24, to, &[])
        }

        pub fn tracepoint(&mut self, name: &str, params: &[TypeId]) {
            let mut words = vec![0, 0];
            params.iter().for_each(|p| words.extend([0, *p]));
            let proto = self.add("", kind::FUNC_PROTO << 24 | (params.len() as u32 + 1), 0, &words);
            let pointer = self.pointer(proto);
            self.add(&format!("btf_trace_{name}"), kind::TYPEDEF << 24, pointer, &[]);
        }

        pub fn enumeration(&mut self, name: &str, values: &[&str]) -> TypeId {
            let mut words = vec![];
            for (i, v) in values.iter().enumerate() {
                words.extend([self.name(v), i as u32]);
            }
            self.add(name, kind::ENUM << 24 | values.len() as u32, 4, &words)
        }

        pub fn finish(&self) -> Vec<u8> {
            let mut out = vec![0x9f, 0xeb, 1, 0];
            let types = self.types.len() as u32;
            for w in [24, 0, types, types, self.strings.len() as u32] {
                out.extend(u32::to_le_bytes(w));
            }
            [out, self.types.clone(), self.strings.clone()].concat()
        }
    }

    fn only(btf: &Btf<'_>, name: &str, path: &[&str]) -> Option<Member> {
        btf.structs(name).find_map(|id| btf.member(id, path))
    }

    #[test]
    fn members_are_found_through_anonymous_unions_typedefs_and_qualifiers() {
        let mut b = Blob::default();
        let long = b.int("long", 8);
        let inner = b.structure("qstr", 16, &[("hash", long, 0), ("name", long, 64)]);
        let constant = b.add("", kind::CONST << 24, inner, &[]);
        let alias = b.add("qstr_t", kind::TYPEDEF << 24, constant, &[]);
        let union = b.composite(kind::UNION, false, "", 16, &[("other", long, 0), ("d_name", alias, 0)]);
        b.structure("dentry", 32, &[("first", long, 0), ("", union, 128)]);
        let blob = b.finish();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(only(&btf, "dentry", &["d_name", "name"]).unwrap().bit, 128 + 64);
        assert_eq!(only(&btf, "dentry", &["d_name", "missing"]), None);
        assert_eq!(only(&btf, "dentry", &["name"]), None, "a named member is not searched for its own members' names");
    }

    #[test]
    fn every_structure_of_a_name_is_offered() {
        let mut b = Blob::default();
        let int = b.int("int", 4);
        b.structure("request", 4, &[("opaque", int, 0)]);
        b.add("request", 7 << 24, 0, &[]); // a forward declaration
        b.structure("request", 8, &[("opaque", int, 0), ("wanted", int, 32)]);
        let blob = b.finish();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(btf.structs("request").count(), 2);
        assert_eq!(only(&btf, "request", &["wanted"]).unwrap().bit, 32);
    }

    #[test]
    fn bit_fields_are_told_apart_with_and_without_the_kind_flag() {
        let mut b = Blob::default();
        let int = b.int("int", 4);
        b.composite(kind::STRUCT, true, "flagged", 8, &[("plain", int, 0), ("bit", int, 1 << 24 | 37)]);
        let narrow = b.add("narrow", kind::INT << 24, 4, &[3 << 16 | 1]);
        b.structure("unflagged", 8, &[("plain", int, 0), ("bit", narrow, 32)]);
        let blob = b.finish();
        let btf = Btf::parse(&blob).unwrap();
        for (name, bit) in [("flagged", 37), ("unflagged", 35)] {
            let plain = only(&btf, name, &["plain"]).unwrap();
            assert_eq!((plain.bit, plain.width), (0, None), "{name}");
            let field = only(&btf, name, &["bit"]).unwrap();
            assert_eq!((field.bit, field.width), (bit, Some(1)), "{name}");
        }
    }

    #[test]
    fn tracepoints_and_enumerations_are_read() {
        let mut b = Blob::default();
        let int = b.int("int", 4);
        let request = b.structure("request", 4, &[("x", int, 0)]);
        let pointer = b.pointer(request);
        b.tracepoint("block_rq_issue", &[pointer, int]);
        b.enumeration("bpf_func_id", &["BPF_FUNC_unspec", "BPF_FUNC_task_pt_regs"]);
        let blob = b.finish();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(btf.tracepoint("block_rq_issue").unwrap(), [b"request".as_slice(), b""]);
        assert_eq!(btf.tracepoint("nothing"), None);
        assert!(btf.enum_has("bpf_func_id", "BPF_FUNC_task_pt_regs"));
        assert!(!btf.enum_has("bpf_func_id", "BPF_FUNC_task"));
    }

    #[test]
    fn foreign_unknown_and_cut_input_gives_the_fitting_error() {
        assert_eq!(Btf::parse(b"\x7fELF").err(), Some(BtfError::Magic([0x7f, b'E'])));
        assert_eq!(Btf::parse(b"").err(), Some(BtfError::Damaged("it is empty")));
        let mut b = Blob::default();
        b.add("future", 27 << 24, 0, &[]);
        assert_eq!(Btf::parse(&b.finish()).err(), Some(BtfError::UnknownKind(27)));
        let mut b = Blob::default();
        b.int("int", 4);
        let blob = b.finish();
        assert!(matches!(Btf::parse(&blob[..blob.len() - 1]).err(), Some(BtfError::Damaged(_))));
    }

    #[test]
    fn circular_types_end() {
        let mut b = Blob::default();
        // Structure 1 holds itself without a name, many times; type 2 is a typedef of itself.
        let many: Vec<_> = (0..200).map(|_| ("", 1, 0)).collect();
        b.structure("loop", 8, &many);
        b.add("self", kind::TYPEDEF << 24, 2, &[]);
        b.structure("user", 8, &[("a", 2, 0)]);
        let blob = b.finish();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(only(&btf, "loop", &["x"]), None);
        assert_eq!(only(&btf, "user", &["a", "b"]), None);
    }
}
