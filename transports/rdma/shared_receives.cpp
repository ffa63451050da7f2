// SPDX-License-Identifier: Apache-2.0
#include "shared_receives.hpp"

#include "work_id.hpp"

#include <cerrno>

namespace verbena::rdma {

shared_receives::shared_receives(domain& d, std::size_t part, std::uint32_t depth)
    : domain_(d), part_(part), home_(d.part(part)), ids_(depth)
{
    free_.reserve(depth);
    for (std::uint32_t i = depth; i > 0; --i)
        free_.push_back(i - 1);
}

shared_receives::~shared_receives()
{
    if (srq_ != nullptr)
        ::ibv_destroy_srq(srq_);
}

result<void> shared_receives::create() noexcept
{
    ibv_srq_init_attr a{};
    a.attr.max_wr = depth();
    a.attr.max_sge = 1;
    srq_ = ::ibv_create_srq(home_.pd, &a);
    if (srq_ == nullptr)
        return error::from_errno(errno, "ibv_create_srq", depth());
    return {};
}

result<void> shared_receives::settle() noexcept
{
    if (home_.on.gone())
        return error(std::errc::no_such_device, "the device was removed");
    home_.on.note(*this);
    return {};
}

result<void> shared_receives::post_receive(std::span<const verbs::receive_request> batch)
{
    if (srq_ == nullptr)
        return error(std::errc::no_such_device, "the device of a shared receive queue was removed");
    if (batch.size() > free_.size())
        return error(std::errc::no_buffer_space, "shared receive queue is full", standing());
    if (const auto known = domain_.check_receives(batch, part_); !known)
        return known.error();
    for (const auto& r : batch) {
        ibv_sge sge{reinterpret_cast<std::uint64_t>(r.segment.address), r.segment.length, 0};
        (void)domain_.find_key(r.segment, part_, sge.lkey);
        const std::uint32_t slot = free_.back();
        ibv_recv_wr w{};
        w.wr_id = work_id::shared_receive(slot);
        w.sg_list = &sge;
        w.num_sge = r.segment.length != 0;
        ibv_recv_wr* bad = nullptr;
        if (const int failed = ::ibv_post_srq_recv(srq_, &w, &bad); failed != 0)
            return error::from_errno(failed, "ibv_post_srq_recv");
        free_.pop_back();
        ids_[slot] = r.id;
    }
    return {};
}

} // namespace verbena::rdma
