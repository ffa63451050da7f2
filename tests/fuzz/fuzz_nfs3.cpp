// SPDX-License-Identifier: Apache-2.0
// NFS version 3. The first byte is the procedure number; its high bit chooses the results instead of
// the arguments.

#include "fuzz.hpp"

#include <verbena/protocols/nfs/wire/v3/codec.hpp>
#include <verbena/protocols/nfs/wire/v3/directory.hpp>

#include <algorithm>
#include <vector>

using namespace verbena;
using namespace verbena::nfs::v3;
using fuzz::require;

namespace {

template<class T>
std::vector<std::byte> encoded(const T& value, std::size_t room)
{
    std::vector<std::byte> bytes(room);
    xdr::encoder out(bytes);
    encode(out, value);
    require(out.ok());
    bytes.resize(out.size());
    return bytes;
}

/// Reads a T. What was read, written and read again is the same.
template<class T>
void item(std::span<const std::byte> bytes)
{
    xdr::decoder in(bytes);
    T first;
    decode(in, first);
    if (!in.ok())
        return;
    require(in.position() <= bytes.size());
    const auto once = encoded(first, bytes.size() + 64);
    xdr::decoder again(once);
    T second;
    decode(again, second);
    // READ's and WRITE's data go by the transport, so that only the rest was written.
    if (again.ok())
        require(std::ranges::equal(once, encoded(second, once.size())));
}

template<class Reader, class Entry>
void directory(std::span<const std::byte> bytes)
{
    xdr::decoder in(bytes);
    directory_head head;
    decode(in, head);
    if (!in.ok() || head.status != nfsstat3::ok)
        return;
    Reader reader(in);
    Entry entry;
    std::size_t entries = 0;
    while (reader.next(entry)) {
        require(fuzz::within(std::as_bytes(std::span(entry.name)), bytes));
        // Each takes at least its mark, fileid, length word and cookie.
        require(++entries * 24 <= bytes.size());
    }
}

void arguments(procedure number, std::span<const std::byte> bytes)
{
    switch (number) {
    case procedure::null: return;
    case procedure::getattr: return item<GETATTR3args>(bytes);
    case procedure::setattr: return item<SETATTR3args>(bytes);
    case procedure::lookup: return item<LOOKUP3args>(bytes);
    case procedure::access: return item<ACCESS3args>(bytes);
    case procedure::readlink: return item<READLINK3args>(bytes);
    case procedure::read: return item<READ3args>(bytes);
    case procedure::write: return item<WRITE3args>(bytes);
    case procedure::create: return item<CREATE3args>(bytes);
    case procedure::mkdir: return item<MKDIR3args>(bytes);
    case procedure::symlink: return item<SYMLINK3args>(bytes);
    case procedure::mknod: return item<MKNOD3args>(bytes);
    case procedure::remove: return item<REMOVE3args>(bytes);
    case procedure::rmdir: return item<RMDIR3args>(bytes);
    case procedure::rename: return item<RENAME3args>(bytes);
    case procedure::link: return item<LINK3args>(bytes);
    case procedure::readdir: return item<READDIR3args>(bytes);
    case procedure::readdirplus: return item<READDIRPLUS3args>(bytes);
    case procedure::fsstat: return item<FSSTAT3args>(bytes);
    case procedure::fsinfo: return item<FSINFO3args>(bytes);
    case procedure::pathconf: return item<PATHCONF3args>(bytes);
    case procedure::commit: return item<COMMIT3args>(bytes);
    }
}

void results(procedure number, std::span<const std::byte> bytes)
{
    switch (number) {
    case procedure::null: return;
    case procedure::getattr: return item<GETATTR3res>(bytes);
    case procedure::setattr: return item<SETATTR3res>(bytes);
    case procedure::lookup: return item<LOOKUP3res>(bytes);
    case procedure::access: return item<ACCESS3res>(bytes);
    case procedure::readlink: return item<READLINK3res>(bytes);
    case procedure::read: return item<READ3res>(bytes);
    case procedure::write: return item<WRITE3res>(bytes);
    case procedure::create:
    case procedure::mkdir:
    case procedure::symlink:
    case procedure::mknod: return item<CREATE3res>(bytes);
    case procedure::remove:
    case procedure::rmdir: return item<REMOVE3res>(bytes);
    case procedure::rename: return item<RENAME3res>(bytes);
    case procedure::link: return item<LINK3res>(bytes);
    case procedure::readdir: return directory<readdir_reader, entry3>(bytes);
    case procedure::readdirplus: return directory<readdirplus_reader, entryplus3>(bytes);
    case procedure::fsstat: return item<FSSTAT3res>(bytes);
    case procedure::fsinfo: return item<FSINFO3res>(bytes);
    case procedure::pathconf: return item<PATHCONF3res>(bytes);
    case procedure::commit: return item<COMMIT3res>(bytes);
    }
}

} // namespace

VERBENA_FUZZ_TARGET(nfs3)
{
    if (size == 0)
        return 0;
    const auto number = static_cast<procedure>(data[0] & 0x7f);
    const auto bytes = fuzz::bytes_of(data + 1, size - 1);
    if ((data[0] & 0x80) == 0)
        arguments(number, bytes);
    else
        results(number, bytes);
    return 0;
}
