// SPDX-License-Identifier: Apache-2.0
#include "failure_choice.hpp"

#include <utility>

namespace verbena::filters {

namespace {

class failing final : public error_filter {
public:
    failing(std::unique_ptr<storage::file_backend> below, const error_options& options, blocking_pool& pool)
        : error_filter(std::move(below)),
          operations_(options.operations),
          failure_(options.code, "injected by the filter error"),
          choice_(options, pool)
    {
    }
    error_counters counters() const noexcept override { return choice_.counters(); }

private:
    bool gates(storage::operation op) const noexcept override
    {
        return choice_.may_fail() && operations_.contains(op);
    }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        const bool chosen = co_await choice_.is_chosen();
        if (chosen)
            co_return failure_;
        co_return result<void>();
    }

    const storage::operation_set operations_;
    const error failure_;
    failure_choice choice_;
};

} // namespace

result<std::unique_ptr<error_filter>> open_error(std::unique_ptr<storage::file_backend> below,
                                                 const error_options& options, blocking_pool& pool)
{
    if (!options.code)
        return error(std::errc::invalid_argument, "error, code: 0 means success; take an error, as EIO");
    if (const auto good = failure_choice::check(options); !good)
        return good.error();
    return std::unique_ptr<error_filter>(std::make_unique<failing>(std::move(below), options, pool));
}

result<std::error_code> parse_error(std::string_view name)
{
    static constexpr std::pair<std::string_view, int> known[] = {
        {"EACCES", EACCES}, {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG},   {"EINVAL", EINVAL},
        {"EIO", EIO},       {"ENOENT", ENOENT}, {"ENOSPC", ENOSPC}, {"ENXIO", ENXIO},
        {"EPERM", EPERM},   {"EROFS", EROFS},   {"ESTALE", ESTALE}, {"ETIMEDOUT", ETIMEDOUT},
    };
    for (const auto& [text, number] : known) {
        if (name == text)
            return std::error_code(number, std::system_category());
    }
    if (name == "delayed")
        return make_error_code(storage::errc::delayed);
    return error(std::errc::invalid_argument,
                 "error, code: no such name; take EACCES, EDQUOT, EFBIG, EINVAL, EIO, ENOENT, ENOSPC, ENXIO, "
                 "EPERM, EROFS, ESTALE, ETIMEDOUT or delayed");
}

} // namespace verbena::filters
