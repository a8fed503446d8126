//! Columns of variable-length integers: how the rows of a hot family lie in a block.
//!
//! A content is the number of its columns, the length of each in bytes, then the columns themselves, every number a
//! LEB128 integer. A reader takes the columns that it knows and leaves any that follow to later versions.

use integer_encoding::VarInt;

/// A column being written.
#[derive(Debug, Default)]
pub(super) struct Column(Vec<u8>);

impl Column {
    /// Appends an unsigned number: 1 byte below 128, 10 at most.
    #[inline]
    pub(super) fn put(&mut self, value: u64) {
        if value < 0x80 {
            self.0.push(value as u8);
            return;
        }
        let mut buf = [0; 10];
        let len = value.encode_var(&mut buf);
        // Appending a fixed length and cutting it compiles to two stores; a variable length is a call to memmove.
        let end = self.0.len() + len;
        self.0.extend_from_slice(&buf);
        self.0.truncate(end);
    }

    /// Appends `to - from` (wrapping, so that it always comes back), small in either direction.
    pub(super) fn put_delta(&mut self, from: u64, to: u64) {
        self.put_signed(to.wrapping_sub(from) as i64);
    }

    /// Appends a signed number, zigzag: 1 byte for -64 to 63.
    pub(super) fn put_signed(&mut self, value: i64) {
        self.put(((value << 1) ^ (value >> 63)) as u64);
    }
}

/// The columns of one block, reused from block to block.
#[derive(Debug)]
pub(super) struct ColumnSet<const N: usize>([Column; N]);

impl<const N: usize> Default for ColumnSet<N> {
    fn default() -> Self {
        ColumnSet(std::array::from_fn(|_| Column::default()))
    }
}

impl<const N: usize> ColumnSet<N> {
    /// Empties the columns and lends them out.
    pub(super) fn start(&mut self) -> &mut [Column; N] {
        for column in &mut self.0 {
            column.0.clear();
        }
        &mut self.0
    }

    /// Lends the columns out as they are.
    pub(super) fn columns(&mut self) -> &mut [Column; N] {
        &mut self.0
    }

    /// Appends the content to `raw`, and to `edges` where each part of it ends.
    pub(super) fn finish(&self, raw: &mut Vec<u8>, edges: &mut Vec<usize>) {
        let mut directory = Column::default();
        directory.put(N as u64);
        for column in &self.0 {
            directory.put(column.0.len() as u64);
        }
        for column in std::iter::once(&directory).chain(&self.0) {
            raw.extend_from_slice(&column.0);
            edges.push(raw.len());
        }
    }
}

/// A column being read. Reading beyond its end, or a number that no `u64` holds, gives `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// Reads these bytes.
    pub(super) fn over(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor(bytes)
    }

    /// The next unsigned number.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        if first < 0x80 {
            self.0 = rest;
            return Some(u64::from(first));
        }
        // Differences of times take two or three bytes: without a call these cost a third.
        let (&second, rest) = rest.split_first()?;
        let low = u64::from(first & 0x7f) | u64::from(second & 0x7f) << 7;
        if second < 0x80 {
            self.0 = rest;
            return Some(low);
        }
        let (&third, rest) = rest.split_first()?;
        if third < 0x80 {
            self.0 = rest;
            return Some(low | u64::from(third) << 14);
        }
        self.take_long()
    }

    /// A number of four bytes or more.
    #[inline(never)]
    fn take_long(&mut self) -> Option<u64> {
        let (value, len) = u64::decode_var(self.0)?;
        self.0 = self.0.get(len..)?;
        Some(value)
    }

    /// The next number as an index or another small unsigned type.
    #[inline]
    pub(super) fn take_as<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.take()?).ok()
    }

    /// The next signed number.
    #[inline]
    pub(super) fn take_signed(&mut self) -> Option<i64> {
        let value = self.take()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The next difference, applied to `from`.
    #[inline]
    pub(super) fn take_delta(&mut self, from: u64) -> Option<u64> {
        Some(from.wrapping_add(self.take_signed()? as u64))
    }

    /// Whether all of it was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// The first `N` columns of a content; `None` if it has fewer or their lengths do not add up.
pub(super) fn split<const N: usize>(raw: &[u8]) -> Option<[Cursor<'_>; N]> {
    let mut directory = Cursor::over(raw);
    let columns: usize = directory.take_as()?;
    // Each column has at least one byte of directory, which bounds the work that a false number can cause.
    if columns < N || columns > raw.len() {
        return None;
    }
    let mut lengths = [0usize; N];
    let mut beyond = 0usize;
    for i in 0..columns {
        let len: usize = directory.take_as()?;
        match lengths.get_mut(i) {
            Some(slot) => *slot = len,
            None => beyond = beyond.checked_add(len)?,
        }
    }
    let mut rest = directory.0;
    let mut out = [Cursor(&[]); N];
    for (cursor, len) in out.iter_mut().zip(lengths) {
        let (column, tail) = rest.split_at_checked(len)?;
        *cursor = Cursor(column);
        rest = tail;
    }
    (rest.len() == beyond).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content<const N: usize>(set: &ColumnSet<N>) -> Vec<u8> {
        let (mut raw, mut edges) = (Vec::new(), Vec::new());
        set.finish(&mut raw, &mut edges);
        assert_eq!(edges.last(), Some(&raw.len()));
        raw
    }

    #[test]
    fn small_numbers_take_one_byte() {
        let mut column = Column::default();
        column.put(127);
        column.put_signed(-64);
        column.put_delta(1_000, 1_063);
        assert_eq!(column.0, [127, 127, 126]);
    }

    #[test]
    fn columns_of_a_later_version_are_left_alone() {
        let mut set = ColumnSet::<3>::default();
        let [a, b, c] = set.start();
        a.put(1);
        b.put(2);
        c.put(300);
        let raw = content(&set);
        let Some([mut a, mut b]) = split::<2>(&raw) else { panic!("two of three columns") };
        assert_eq!((a.take(), b.take(), b.is_at_end()), (Some(1), Some(2), true));
        assert!(split::<4>(&raw).is_none());
    }

    #[test]
    fn a_directory_that_does_not_add_up_is_refused() {
        assert!(split::<1>(&[]).is_none());
        assert!(split::<1>(&[1, 5, 0, 0]).is_none());
        assert!(split::<1>(&[1, 1, 0, 0]).is_none());
        assert!(split::<1>(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).is_none());
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        assert_eq!(Cursor::over(&[0xff; 11]).take(), None);
        assert_eq!(Cursor::over(&[0x80]).take(), None);
        assert_eq!(Cursor::over(&[0x80, 0x04]).take_as::<u8>(), None);
    }

    proptest! {
        #[test]
        fn numbers_come_back(values in prop::collection::vec((any::<u64>(), any::<u64>(), any::<i64>()), 0..50)) {
            let mut set = ColumnSet::<3>::default();
            let [plain, delta, signed] = set.start();
            for &(a, b, c) in &values {
                plain.put(a);
                delta.put_delta(a, b);
                signed.put_signed(c);
            }
            let raw = content(&set);
            let [mut plain, mut delta, mut signed] = split::<3>(&raw).unwrap();
            for &(a, b, c) in &values {
                prop_assert_eq!(plain.take(), Some(a));
                prop_assert_eq!(delta.take_delta(a), Some(b));
                prop_assert_eq!(signed.take_signed(), Some(c));
            }
            prop_assert!(plain.is_at_end() && delta.is_at_end() && signed.is_at_end());
        }

        #[test]
        fn arbitrary_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(cursors) = split::<4>(&raw) {
                for mut cursor in cursors {
                    while cursor.take().is_some() {}
                }
            }
        }
    }
}
