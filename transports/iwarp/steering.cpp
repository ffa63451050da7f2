// SPDX-License-Identifier: Apache-2.0
#include "steering.hpp"

#include "queue_pair.hpp"

#include <algorithm>

namespace verbena::iwarp {

// The tagged offset is the address: any value would do, and this one reads well in a capture.
steering_grant::steering_grant(domain& d, const verbs::grant_request& r, steering::scope_id scope)
    : grant(d.table(), &d, r, reinterpret_cast<std::uint64_t>(r.memory.data()), scope), domain_(d)
{
    steering_grant::on_bound();
}

void steering_grant::on_bound() noexcept
{
    if (is_bulk())
        ++domain_.bulk_grants;
}

steering_grant::~steering_grant() { revoke(); }

bool steering_grant::is_bulk() const noexcept
{
    return memory().size() >= iwarp::domain::bulk && verbs::allows(rights(), verbs::access::remote_write);
}

void steering_grant::on_revoked(std::uint32_t stag) noexcept
{
    if (is_bulk())
        --domain_.bulk_grants;
    // Bytes of this memory may be queued for a socket that was full. They can't be recalled, so the
    // connection goes (RFC 8166 4.4.1: if it cannot fence, it closes).
    // Who hears of that end may revoke more, which ends others, and may destroy this grant: no place in the list holds, so each
    // search begins anew. One that ends leaves the list.
    const auto& responding = domain_.responding;
    const auto owing = [&responding, stag] {
        return std::ranges::find_if(responding, [stag](const connection* c) { return c->owes(stag); });
    };
    for (auto c = owing(); c != responding.end(); c = owing())
        (*c)->kill(error(std::errc::operation_canceled, "grant revoked while the peer was reading it"));
}

steering_check steering_table::check(std::uint32_t stag, std::uint64_t offset, std::uint64_t size,
                                     verbs::access want, const domain& d, steering::scope_id scope,
                                     bool read_source) const noexcept
{
    const steering::finding f = table::check(stag, offset, size, want, &d, scope);
    const auto code = [&] {
        switch (f.fault) {
        case steering::fault::none: break;
        case steering::fault::invalid_tag:
            return read_source ? wire::remote_invalid_stag : wire::ddp_invalid_stag;
        case steering::fault::not_associated:
            return read_source ? wire::remote_not_associated : wire::ddp_not_associated;
        case steering::fault::access: return wire::remote_access;
        case steering::fault::wrap: return read_source ? wire::remote_wrap : wire::ddp_wrap;
        case steering::fault::bounds: return read_source ? wire::remote_bounds : wire::ddp_bounds;
        }
        return wire::terminate_code{};
    };
    return {f.address, code(), f.rule};
}

task<result<void>> domain::make_grants(std::span<verbs::grant_request> batch)
{
    for (const auto& r : batch) {
        if (r.memory.size() > 0xffffffff)
            co_return error(std::errc::invalid_argument, "a grant covers less than 4 GiB", r.memory.size());
    }
    for (auto& r : batch)
        r.made.reset(new steering_grant(*this, r,
                                        r.scope != nullptr ? static_cast<connection*>(r.scope)->scope() : 0));
    co_return result<void>();
}

task<void> domain::revoke(std::span<std::unique_ptr<verbs::grant>> batch)
{
    for (auto& g : batch)
        g.reset();
    co_return;
}

task<result<std::unique_ptr<verbs::shared_receive_queue>>>
domain::make_shared_receive_queue(const verbs::shared_receive_queue_options& o)
{
    co_return std::unique_ptr<verbs::shared_receive_queue>(std::make_unique<shared_receives>(o));
}

namespace {
class plain_region final : public verbs::region {
public:
    std::uint32_t local_key() const noexcept override { return 0; }
};
} // namespace

task<result<std::unique_ptr<verbs::region>>> domain::register_memory(std::span<std::byte>)
{
    co_return std::unique_ptr<verbs::region>(std::make_unique<plain_region>());
}

} // namespace verbena::iwarp
