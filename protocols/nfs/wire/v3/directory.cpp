// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v3/binding.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>
#include <verbena/protocols/nfs/wire/v3/directory.hpp>

#include <algorithm>

namespace verbena::nfs::v3 {

using namespace wire;

namespace {

// The word that ends the list, and eof.
constexpr std::size_t trailer_size = 4 + 4;

/// fileid, name and cookie: what dircount counts.
std::size_t directory_size(std::string_view name) noexcept { return 8 + xdr::opaque_size(name.size()) + 8; }

/// What is left for entries of a resok that may take `limit` bytes, its head being written.
detail::entry_budget budget_for_entries(const xdr::encoder& out, std::size_t head, std::size_t limit) noexcept
{
    if (limit < head + trailer_size || out.room() < trailer_size)
        return {};
    return {true, std::min(limit - head, out.room()) - trailer_size};
}

/// Writes the head and returns what of it belongs to the resok, which begins behind the status.
std::size_t encode_head(xdr::encoder& out, const directory_head& head) noexcept
{
    const std::size_t before = out.size();
    encode(out, head);
    return out.size() - before - wire_size::status;
}

/// Reads the word before each entry; behind the last one reads eof.
bool next_entry(xdr::decoder& in, bool& done, bool& eof) noexcept
{
    if (done)
        return false;
    if (in.boolean())
        return true;
    done = true;
    eof = in.boolean();
    return false;
}

} // namespace

void encode(xdr::encoder& out, const directory_head& head) noexcept
{
    encode_enum(out, head.status);
    encode(out, head.dir_attributes);
    if (head.status == nfsstat3::ok)
        out.opaque_fixed(head.cookieverf);
}

void decode(xdr::decoder& in, directory_head& head) noexcept
{
    const bool good = decode_status(in, head.status);
    decode(in, head.dir_attributes);
    if (good)
        decode_verifier(in, head.cookieverf);
}

readdir_writer::readdir_writer(xdr::encoder& out, const READDIR3args& args,
                               const directory_head& head) noexcept
    : out_(&out)
{
    const std::size_t head_size = encode_head(out, head);
    budget_ = budget_for_entries(out, head_size, args.count);
}

bool readdir_writer::add(const entry3& entry) noexcept
{
    const std::size_t size = 4 + directory_size(entry.name);
    if (size > budget_.left)
        return false;
    budget_.left -= size;
    out_->boolean(true);
    out_->u64(entry.fileid);
    out_->string(entry.name);
    out_->u64(entry.cookie);
    ++entries_;
    return true;
}

void readdir_writer::finish(bool eof) noexcept
{
    out_->boolean(false);
    out_->boolean(eof);
}

readdirplus_writer::readdirplus_writer(xdr::encoder& out, const READDIRPLUS3args& args,
                                       const directory_head& head) noexcept
    : out_(&out), directory_budget_(args.dircount)
{
    const std::size_t head_size = encode_head(out, head);
    budget_ = budget_for_entries(out, head_size, args.maxcount);
}

bool readdirplus_writer::has_room_for(std::string_view name) const noexcept
{
    const std::size_t directory = directory_size(name);
    return 4 + directory + wire_size::max_post_op_attr + wire_size::max_post_op_fh3 <= budget_.left &&
           (entries_ == 0 || directory <= directory_budget_);
}

bool readdirplus_writer::add(const entryplus3& entry) noexcept
{
    const std::size_t directory = directory_size(entry.name);
    const std::size_t size = 4 + directory + 4 + (entry.name_attributes ? wire_size::fattr3 : 0) + 4 +
                             (entry.name_handle ? xdr::opaque_size(entry.name_handle->size()) : 0);
    if (size > budget_.left || (entries_ != 0 && directory > directory_budget_))
        return false;
    budget_.left -= size;
    directory_budget_ -= std::min(directory, directory_budget_);
    out_->boolean(true);
    out_->u64(entry.fileid);
    out_->string(entry.name);
    out_->u64(entry.cookie);
    encode(*out_, entry.name_attributes);
    encode(*out_, entry.name_handle);
    ++entries_;
    return true;
}

void readdirplus_writer::finish(bool eof) noexcept
{
    out_->boolean(false);
    out_->boolean(eof);
}

bool readdir_reader::next(entry3& entry) noexcept
{
    if (!next_entry(*in_, done_, eof_))
        return false;
    entry.fileid = in_->u64();
    entry.name = in_->string(max_filename);
    entry.cookie = in_->u64();
    return in_->ok();
}

bool readdirplus_reader::next(entryplus3& entry) noexcept
{
    if (!next_entry(*in_, done_, eof_))
        return false;
    entry.fileid = in_->u64();
    entry.name = in_->string(max_filename);
    entry.cookie = in_->u64();
    decode(*in_, entry.name_attributes);
    decode(*in_, entry.name_handle);
    return in_->ok();
}

} // namespace verbena::nfs::v3
