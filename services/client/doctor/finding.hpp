// SPDX-License-Identifier: Apache-2.0
// What `verbena doctor` found, and how it tells.
#pragma once

#include "../json_text.hpp"

#include <cstdint>
#include <string>

namespace verbena::cli {

enum class verdict : std::uint8_t {
    good,
    hint, ///< verbena works, and not as well as it could
    bad,  ///< verbena does not work, or not as it was told to
};

struct finding {
    std::string check; ///< what was looked at, in a word or two
    verdict result = verdict::good;
    std::string text;
    std::string cure = {};
    std::string setting = {}; ///< "nfs.export.directory"; empty: it is of no setting
    std::string place = {};   ///< of that setting: "verbenad.toml:12"; empty: nobody wrote it
};

/// Tells each finding at once, as text; as JSON all of them together.
class report {
public:
    explicit report(bool as_json) : as_json_(as_json) {}
    void add(const finding& f);
    /// The exit code: whether one of them was bad.
    int finish();

private:
    bool as_json_;
    bool is_bad_ = false;
    nlohmann::json all_ = nlohmann::json::array();
};

} // namespace verbena::cli
