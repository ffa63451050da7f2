// SPDX-License-Identifier: Apache-2.0
// nullblk as a module: a block device that takes everything and keeps nothing, to measure what stands before a disk.
#include <verbena/plugins/modules.hpp>

#include <verbena/core/byte_size.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <algorithm>
#include <bit>

namespace verbena::nullblk {

namespace {

class backend final : public storage::block_backend {
public:
    explicit backend(const storage::block_properties& p) noexcept : properties_(p) {}
    std::string_view kind() const noexcept override { return "nullblk"; }
    storage::block_properties properties() const noexcept override { return properties_; }

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override
    {
        const auto good = check_range(properties_, offset, into.size(), false);
        if (good)
            std::ranges::fill(into, std::byte(0));
        co_return good;
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool) override
    {
        co_return check_range(properties_, offset, from.size(), true);
    }
    task<result<void>> flush() override { co_return result<void>(); }
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override
    {
        co_return check_range(properties_, offset, length, true);
    }
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool) override
    {
        co_return check_range(properties_, offset, length, true);
    }

private:
    const storage::block_properties properties_;
};

class nullblk_module final : public storage::block_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::text("size", "1G", "Bytes that it claims to have, with K, M, G or T for powers of 1024")
                .form("SIZE")
                .main(),
            setting::number("block_size", {512, 4096}, 512, "Bytes of a block: 512, 1024, 2048 or 4096")};
    }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)properties_of(values, name);
    }
    storage::opened_block open(const setting_values& values,
                               const storage::open_block_context& context) override
    {
        storage::block_properties p = properties_of(values, context.name);
        p.read_only = context.read_only;
        storage::opened_block out;
        out.device = std::make_unique<backend>(p);
        out.source = "nullblk";
        out.warning = "reads as zeros: what is written is lost";
        return out;
    }

private:
    static storage::block_properties properties_of(const setting_values& values, const std::string& name)
    {
        storage::block_properties p;
        const auto size = parse_byte_size(values.text("size"));
        const std::uint64_t block = values.number("block_size");
        if (!std::has_single_bit(block))
            throw config_error(name + ": block_size is 512, 1024, 2048 or 4096");
        if (!size || *size == 0 || *size % block != 0)
            throw config_error(name + ": size " + values.text("size") +
                               " is no size of whole blocks: write bytes, or as 64M or 2G");
        p.size = *size;
        p.block_size = static_cast<std::uint32_t>(block);
        p.physical_block_size = p.block_size;
        p.discard_granularity = p.block_size;
        p.write_zeroes = true;
        p.run = 1; // a restart loses nothing that was not lost before
        return p;
    }
};

} // namespace

} // namespace verbena::nullblk

const verbena::module_descriptor verbena::modules::nullblk = {
    .name = "nullblk",
    .version = VERBENA_VERSION,
    .summary = "a block device that takes everything and keeps nothing",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<nullblk::nullblk_module>(); },
};
