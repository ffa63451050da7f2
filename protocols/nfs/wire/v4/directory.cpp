// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/directory.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {
namespace {

constexpr std::size_t end_size = 4 + 4; // no further entry, eof

} // namespace

readdir_writer::readdir_writer(xdr::encoder& out, const READDIR4args& args, const verifier4& cookieverf,
                               std::size_t room) noexcept
    : out_(&out), directory_left_(args.dircount == 0 ? SIZE_MAX : args.dircount)
{
    const std::size_t limit = std::min({std::size_t(args.maxcount), room, out.room()});
    fits_ = limit >= sizeof cookieverf + end_size;
    if (!fits_)
        return;
    left_ = limit - sizeof cookieverf - end_size;
    wire::put(out, cookieverf);
}

bool readdir_writer::add(std::uint64_t cookie, std::string_view name, const bitmap4& wanted,
                         const attributes& values) noexcept
{
    const std::size_t in_directory = 8 + xdr::opaque_size(name.size());
    if (!fits_ || (entries_ != 0 && in_directory > directory_left_))
        return false;
    const std::size_t before = out_->size();
    wire::put(*out_, true, cookie, component4(name));
    encode_attributes(*out_, wanted, values);
    const std::size_t taken = out_->size() - before;
    if (!out_->ok() || taken > left_) {
        out_->truncate(before);
        return false;
    }
    left_ -= taken;
    directory_left_ -= std::min(directory_left_, in_directory);
    ++entries_;
    return true;
}

void readdir_writer::finish(bool eof) noexcept { wire::put(*out_, false, eof); }

bool readdir_reader::next(entry4& entry) noexcept
{
    if (done_ || !in_->ok())
        return false;
    bool more = false;
    wire::get(*in_, more);
    if (!more) {
        done_ = true;
        wire::get(*in_, eof_);
        return false;
    }
    entry = {};
    wire::get(*in_, entry);
    return in_->ok();
}

} // namespace verbena::nfs::v4
