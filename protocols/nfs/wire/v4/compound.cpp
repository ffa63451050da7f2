// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/callback.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {
namespace {

/// What an operation that fails takes: opcode, status, and SETATTR's empty bitmap.
constexpr std::size_t failure_size = 4 + 4 + 4;

} // namespace

template<class Operations>
basic_arguments<Operations>::basic_arguments(xdr::decoder& in) noexcept : in_(&in)
{
    wire::get(in, head_);
    ok_ = in.ok();
}

template<class Operations>
bool basic_arguments<Operations>::next() noexcept
{
    if (!ok_ || !in_->ok() || index_ == head_.operations)
        return false;
    ++index_;
    const std::uint32_t number = in_->u32();
    opcode_ = in_->ok() ? static_cast<opnum>(number) : opnum::illegal;
    return true;
}

template<class Operations>
auto basic_arguments<Operations>::following(opnum passed) const noexcept -> opnum
{
    xdr::decoder ahead(*in_);
    for (std::uint32_t i = index_; i < head_.operations; ++i) {
        const auto number = static_cast<opnum>(ahead.u32());
        if (!ahead.ok())
            break;
        if (number != passed)
            return number;
    }
    return opnum::illegal;
}

template<class Operations>
basic_results<Operations>::basic_results(xdr::encoder& out, std::string_view tag, std::size_t limit) noexcept
    : out_(&out), first_(out.position()), head_(out.size()), limit_(limit)
{
    wire::put(out, status_, text_view<max_tag>(tag));
    count_ = out.size();
    out.u32(0);
    current_ = out.size();
    ok_ = out.ok() && out.room() >= failure_size && out.position() - first_ + failure_size <= limit_;
}

template<class Operations>
std::size_t basic_results<Operations>::room() const noexcept
{
    const std::size_t taken = out_->position() - first_ + failure_size;
    const std::size_t in_block = out_->room() < failure_size ? 0 : out_->room() - failure_size;
    return taken > limit_ ? 0 : std::min(limit_ - taken, in_block);
}

template<class Operations>
void basic_results<Operations>::begin_with_status(opnum operation) noexcept
{
    current_ = out_->size();
    out_->u32(static_cast<std::uint32_t>(operation));
}

template<class Operations>
xdr::encoder& basic_results<Operations>::begin(opnum operation) noexcept
{
    begin_with_status(operation);
    wire::put(*out_, nfsstat4::ok);
    return *out_;
}

template<class Operations>
void basic_results<Operations>::undo() noexcept
{
    out_->truncate(current_);
}

template<class Operations>
bool basic_results<Operations>::end(nfsstat4 status) noexcept
{
    return commit(status, failure_size);
}

template<class Operations>
bool basic_results<Operations>::commit(nfsstat4 status, std::size_t kept) noexcept
{
    if (!out_->ok() || out_->room() < kept || out_->position() - first_ + kept > limit_) {
        undo();
        return false;
    }
    status_ = status;
    ++operations_;
    out_->patch_u32(head_, static_cast<std::uint32_t>(status));
    out_->patch_u32(count_, operations_);
    return true;
}

template<class Operations>
void basic_results<Operations>::fail(opnum operation, nfsstat4 status) noexcept
{
    begin_with_status(operation);
    // A failure may have an arm of its own, which is written empty: the message is whole whatever the status.
    if (!Operations::results::with(operation, [&]<class Results>(Results results) {
            results.status = status;
            xdr::codec<Results>::encode(*out_, results);
        }))
        wire::put(*out_, status);
    ok_ = commit(status, 0) && ok_;
}

template<class Operations>
void basic_results<Operations>::refuse(nfsstat4 status) noexcept
{
    out_->truncate(count_ + 4);
    operations_ = 0;
    status_ = status;
    out_->patch_u32(head_, static_cast<std::uint32_t>(status));
    out_->patch_u32(count_, 0);
}

template<class Operations>
basic_request<Operations>::basic_request(xdr::encoder& out, typename Operations::head head) noexcept
    : out_(&out)
{
    head.operations = 0;
    wire::put(out, head);
    count_ = out.size() - 4;
}

template<class Operations>
void basic_request<Operations>::begin(typename Operations::opcode operation) noexcept
{
    out_->u32(static_cast<std::uint32_t>(operation));
    ++operations_;
    if (out_->ok())
        out_->patch_u32(count_, operations_);
}

template<class Operations>
basic_reply<Operations>::basic_reply(xdr::decoder& in) noexcept : in_(&in)
{
    wire::get(in, head_);
    left_ = head_.operations;
}

template<class Operations>
bool basic_reply<Operations>::next(opnum wanted, nfsstat4& status) noexcept
{
    if (!in_->ok() || left_ == 0)
        return false;
    --left_;
    const auto opcode = static_cast<opnum>(in_->u32());
    if (opcode == wanted)
        return true;
    if (opcode == opnum::illegal) {
        wire::get(*in_, status);
        judge(status);
    } else {
        in_->fail("results of another operation than the one that was asked for");
    }
    return false;
}

template<class Operations>
bool basic_reply<Operations>::judge(nfsstat4 status) noexcept
{
    if (in_->ok() && status != nfsstat4::ok && left_ != 0)
        in_->fail("results behind an operation that failed");
    return in_->ok() && status == nfsstat4::ok;
}

template class basic_arguments<compound_operations>;
template class basic_results<compound_operations>;
template class basic_request<compound_operations>;
template class basic_reply<compound_operations>;
template class basic_arguments<callback_operations>;
template class basic_results<callback_operations>;
template class basic_request<callback_operations>;
template class basic_reply<callback_operations>;

} // namespace verbena::nfs::v4
