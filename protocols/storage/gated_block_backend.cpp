// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/gated_block_backend.hpp>

#include <string>
#include <utility>

namespace verbena::storage {

namespace {

block_call read_call(block_backend& below, std::string_view client, std::uint64_t offset,
                     std::span<std::byte> into) noexcept
{
    return {below, client, block_operation::read, false, offset, into.size(), into, {}};
}
block_call write_call(block_backend& below, std::string_view client, std::uint64_t offset,
                      std::span<const std::byte> from, bool through) noexcept
{
    return {below, client, block_operation::write, through, offset, from.size(), {}, from};
}
block_call range_call(block_backend& below, std::string_view client, block_operation op, std::uint64_t offset,
                      std::uint64_t length, bool flag) noexcept
{
    return {below, client, op, flag, offset, length, {}, {}};
}

} // namespace

block_call block_call::first(std::uint64_t n) const noexcept
{
    block_call part = *this;
    part.length = n;
    if (operation == block_operation::read)
        part.into = into.first(n);
    else if (operation == block_operation::write)
        part.from = from.first(n);
    return part;
}

task<result<void>> block_call::run() const
{
    switch (operation) {
    case block_operation::read: return below.read(offset, into);
    case block_operation::write: return below.write(offset, from, flag);
    case block_operation::discard: return below.discard(offset, length);
    case block_operation::write_zeroes: return below.write_zeroes(offset, length, flag);
    case block_operation::flush: break;
    }
    return below.flush();
}

/// The filter as one client uses it.
class gated_block_backend::client_view final : public block_backend {
public:
    /// `own` is what the client uses of the back end below, or nothing.
    client_view(gated_block_backend& gate, std::string_view client, std::unique_ptr<block_backend> own)
        : gate_(gate), client_(client), own_(std::move(own))
    {
    }
    std::string_view kind() const noexcept override { return gate_.kind(); }
    block_properties properties() const noexcept override { return gate_.properties(); }
    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override
    {
        return gate_.take(read_call(below(), client_, offset, into));
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) override
    {
        return gate_.take(write_call(below(), client_, offset, from, through));
    }
    task<result<void>> flush() override
    {
        return gate_.take(range_call(below(), client_, block_operation::flush, 0, 0, false));
    }
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override
    {
        return gate_.take(range_call(below(), client_, block_operation::discard, offset, length, false));
    }
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) override
    {
        return gate_.take(range_call(below(), client_, block_operation::write_zeroes, offset, length, keep));
    }

private:
    block_backend& below() noexcept { return own_ ? *own_ : gate_.below(); }

    gated_block_backend& gate_;
    const std::string client_;
    const std::unique_ptr<block_backend> own_;
};

task<result<void>> gated_block_backend::pass(block_call c)
{
    const auto entered = co_await enter(c);
    if (!entered)
        co_return entered.error();
    auto done = co_await c.run();
    if (!done)
        failed_below(c);
    co_return done;
}

task<result<void>> gated_block_backend::take(const block_call& c)
{
    return gates(c.operation) ? pass(c) : c.run();
}

task<result<void>> gated_block_backend::read(std::uint64_t offset, std::span<std::byte> into)
{
    return take(read_call(*below_, {}, offset, into));
}

task<result<void>> gated_block_backend::write(std::uint64_t offset, std::span<const std::byte> from,
                                              bool through)
{
    return take(write_call(*below_, {}, offset, from, through));
}

task<result<void>> gated_block_backend::flush()
{
    return take(range_call(*below_, {}, block_operation::flush, 0, 0, false));
}

task<result<void>> gated_block_backend::discard(std::uint64_t offset, std::uint64_t length)
{
    return take(range_call(*below_, {}, block_operation::discard, offset, length, false));
}

task<result<void>> gated_block_backend::write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep)
{
    return take(range_call(*below_, {}, block_operation::write_zeroes, offset, length, keep));
}

std::unique_ptr<block_backend> gated_block_backend::for_client(std::string_view client)
{
    auto own = below_->for_client(client);
    if (!own && !tells_clients_apart())
        return nullptr;
    return std::make_unique<client_view>(*this, client, std::move(own));
}

} // namespace verbena::storage
