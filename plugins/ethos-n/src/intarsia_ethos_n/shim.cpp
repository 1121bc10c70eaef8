// SPDX-License-Identifier: Apache-2.0
// Reads network.json and weights.bin of the Ethos-N plugin and calls Arm's Support Library.
//
//   shim query    VARIANT SRAM network.json weights.bin OUT
//   shim compile  VARIANT SRAM network.json weights.bin OUT [name=0|1 ...]
//   shim estimate VARIANT SRAM network.json weights.bin OUT [name=0|1 ...]
//
// query writes a line for each operation: level, a tab, the library's reason. compile writes the
// compiled network, and its buffers to standard output. estimate writes the library's JSON.
// Exit codes: 0 done, 2 usage, 3 the library threw, 4 no plan was found.

#include <ethosn_support_library/Support.hpp>
#include <ethosn_support_library/SupportQueries.hpp>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/personality.h>
#include <unistd.h>
#endif

namespace sl = ethosn::support_library;

namespace {

// ---- JSON, as the plugin writes it ----

struct Json {
    enum class Kind { Null, Bool, Number, Text, List, Object };
    Kind kind = Kind::Null;
    double number = 0;
    std::string text;
    std::vector<Json> list;
    std::map<std::string, Json> object;

    const Json& at(const std::string& key) const {
        const auto found = object.find(key);
        if (found == object.end())
            throw std::runtime_error("network.json lacks '" + key + "'");
        return found->second;
    }
    uint32_t u(const std::string& key) const { return static_cast<uint32_t>(at(key).number); }
    uint32_t u(const std::string& key, std::size_t index) const {
        return static_cast<uint32_t>(at(key).list.at(index).number);
    }
};

class Reader {
public:
    explicit Reader(const std::string& source) : source_(source) {}

    Json read() {
        space();
        Json value;
        const char first = peek();
        if (first == '{') {
            value.kind = Json::Kind::Object;
            items('}', [&] {
                std::string key = word();
                space();
                expect(':');
                value.object[std::move(key)] = read();
            });
        } else if (first == '[') {
            value.kind = Json::Kind::List;
            items(']', [&] { value.list.push_back(read()); });
        } else if (first == '"') {
            value.kind = Json::Kind::Text;
            value.text = word();
        } else if (first == 't' || first == 'f') {
            value.kind = Json::Kind::Bool;
            value.number = first == 't' ? 1 : 0;
            at_ += first == 't' ? 4 : 5;
        } else if (first == 'n') {
            at_ += 4;
        } else {
            value.kind = Json::Kind::Number;
            char* end = nullptr;
            value.number = std::strtod(source_.c_str() + at_, &end);
            if (end == source_.c_str() + at_)
                throw std::runtime_error("network.json is damaged");
            at_ = static_cast<std::size_t>(end - source_.c_str());
        }
        return value;
    }

private:
    char peek() const {
        if (at_ >= source_.size())
            throw std::runtime_error("network.json ends too early");
        return source_[at_];
    }
    void expect(char wanted) {
        if (peek() != wanted)
            throw std::runtime_error("network.json is damaged");
        ++at_;
    }
    void space() {
        while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(source_[at_])))
            ++at_;
    }
    std::string word() {
        space();
        expect('"');
        std::string text;
        for (; peek() != '"'; ++at_) {
            if (peek() == '\\')
                ++at_;
            text.push_back(peek());
        }
        ++at_;
        return text;
    }
    void items(char last, const std::function<void()>& item) {
        ++at_;
        space();
        while (peek() != last) {
            item();
            space();
            if (peek() == ',')
                ++at_;
            space();
        }
        ++at_;
    }

    const std::string& source_;
    std::size_t at_ = 0;
};

std::string contents(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error(std::string("cannot read ") + path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// ---- tensors ----

sl::DataType type_of(const std::string& name) {
    if (name == "u8")
        return sl::DataType::UINT8_QUANTIZED;
    return name == "s8" ? sl::DataType::INT8_QUANTIZED : sl::DataType::INT32_QUANTIZED;
}

sl::TensorInfo info_of(const Json& tensor, sl::DataFormat format) {
    const Json& given = tensor.at("quantization");
    std::vector<float> scales;
    for (const Json& scale : given.at("scales").list)
        scales.push_back(static_cast<float>(scale.number));
    sl::QuantizationInfo numbers(static_cast<int32_t>(given.at("zero").number),
                                 sl::QuantizationScales(scales));
    if (given.at("axis").number >= 0)
        numbers.SetQuantizationDim(given.u("axis"));
    const sl::TensorShape shape{tensor.u("shape", 0), tensor.u("shape", 1), tensor.u("shape", 2),
                                tensor.u("shape", 3)};
    return {shape, type_of(tensor.at("dtype").text), format, numbers};
}

struct Step {
    const Json& json;
    const Json& tensors;

    std::string kind() const { return json.at("kind").text; }
    std::string input(std::size_t index) const { return json.at("inputs").list.at(index).text; }
    const Json& attrs() const { return json.at("attrs"); }
    sl::TensorInfo data(std::size_t index = 0) const {
        return info_of(tensors.at(input(index)), sl::DataFormat::NHWC);
    }
    sl::TensorInfo weights() const {
        const auto format =
            kind() == "depthwise" ? sl::DataFormat::HWIM : sl::DataFormat::HWIO;
        return info_of(tensors.at(input(1)), format);
    }
    sl::TensorInfo bias() const { return data(2); }
    sl::TensorInfo result() const {
        return info_of(tensors.at(json.at("output").text), sl::DataFormat::NHWC);
    }
    sl::QuantizationInfo numbers() const { return result().m_QuantizationInfo; }
    sl::Padding padding() const {
        return {attrs().u("padding", 0), attrs().u("padding", 1), attrs().u("padding", 2),
                attrs().u("padding", 3)};
    }
    sl::ConvolutionInfo convolution() const {
        return {padding(), {attrs().u("stride", 0), attrs().u("stride", 1)}, numbers()};
    }
    sl::PoolingInfo pooling() const {
        return {attrs().u("size", 0),
                attrs().u("size", 1),
                attrs().u("stride", 0),
                attrs().u("stride", 1),
                padding(),
                attrs().at("type").text == "avg" ? sl::PoolingType::AVG : sl::PoolingType::MAX};
    }
    sl::ReluInfo relu() const {
        return {static_cast<int16_t>(attrs().at("lower").number),
                static_cast<int16_t>(attrs().at("upper").number)};
    }
    sl::RequantizeInfo requantize() const {
        sl::RequantizeInfo info(numbers());
        info.m_OutputDataType = result().m_DataType;
        return info;
    }
    sl::LeakyReluInfo leaky() const {
        return {static_cast<float>(attrs().at("alpha").number), numbers()};
    }
    sl::ResizeInfo resize() const {
        const auto shape = result().m_Dimensions;
        const auto way = attrs().at("algorithm").text == "bilinear"
                             ? sl::ResizeAlgorithm::BILINEAR
                             : sl::ResizeAlgorithm::NEAREST_NEIGHBOUR;
        return {way, shape[1], shape[2], numbers()};
    }
    sl::DepthToSpaceInfo block() const { return {attrs().u("block")}; }
    sl::SplitInfo split() const {
        std::vector<uint32_t> sizes;
        for (const Json& size : attrs().at("sizes").list)
            sizes.push_back(static_cast<uint32_t>(size.number));
        return {attrs().u("axis"), sizes};
    }
    sl::TransposeInfo order() const {
        return {{attrs().u("order", 0), attrs().u("order", 1), attrs().u("order", 2),
                 attrs().u("order", 3)}};
    }
    sl::ConcatenationInfo join() const { return {attrs().u("axis"), numbers()}; }
    std::vector<sl::TensorInfo> all() const {
        std::vector<sl::TensorInfo> found;
        for (std::size_t index = 0; index < json.at("inputs").list.size(); ++index)
            found.push_back(data(index));
        return found;
    }
};

// ---- query ----

sl::SupportedLevel asked(const sl::SupportQueries& ask, const Step& step, char* why, size_t n) {
    const std::string kind = step.kind();
    sl::TensorInfo out = step.result();
    if (kind == "convolution")
        return ask.IsConvolutionSupported(step.bias(), step.weights(), step.convolution(),
                                          step.data(), &out, why, n);
    if (kind == "depthwise")
        return ask.IsDepthwiseConvolutionSupported(step.bias(), step.weights(),
                                                   step.convolution(), step.data(), &out, why, n);
    if (kind == "fully-connected")
        return ask.IsFullyConnectedSupported(step.bias(), step.weights(), {step.numbers()},
                                             step.data(), &out, why, n);
    if (kind == "addition")
        return ask.IsAdditionSupported(step.data(0), step.data(1), step.numbers(), &out, why, n);
    if (kind == "multiplication")
        return ask.IsMultiplicationSupported(step.data(0), step.data(1), step.numbers(), &out,
                                             why, n);
    if (kind == "relu")
        return ask.IsReluSupported(step.relu(), step.data(), &out, why, n);
    if (kind == "leaky-relu")
        return ask.IsLeakyReluSupported(step.leaky(), step.data(), &out, why, n);
    if (kind == "sigmoid")
        return ask.IsSigmoidSupported(step.data(), &out, why, n);
    if (kind == "tanh")
        return ask.IsTanhSupported(step.data(), &out, why, n);
    if (kind == "requantize")
        return ask.IsRequantizeSupported(step.requantize(), step.data(), &out, why, n);
    if (kind == "mean")
        return ask.IsMeanXySupported(step.data(), &out, why, n);
    if (kind == "pooling")
        return ask.IsPoolingSupported(step.pooling(), step.data(), &out, why, n);
    if (kind == "reshape")
        return ask.IsReshapeSupported(out.m_Dimensions, step.data(), &out, why, n);
    if (kind == "concatenation")
        return ask.IsConcatenationSupported(step.all(), step.join(), &out, why, n);
    if (kind == "depth-to-space")
        return ask.IsDepthToSpaceSupported(step.data(), step.block(), &out, why, n);
    if (kind == "transpose-convolution")
        return ask.IsTransposeConvolutionSupported(step.bias(), step.weights(),
                                                   step.convolution(), step.data(), &out, why, n);
    if (kind == "split") {
        std::vector<sl::TensorInfo> parts(step.split().m_Sizes.size());
        return ask.IsSplitSupported(step.data(), step.split(), &parts, why, n);
    }
    if (kind == "transpose")
        return ask.IsTransposeSupported(step.order(), step.data(), &out, why, n);
    if (kind == "space-to-depth")
        return ask.IsSpaceToDepthSupported(step.data(), {step.attrs().u("block")}, &out, why, n);
    if (kind == "resize")
        return ask.IsResizeSupported(step.resize(), step.data(), &out, why, n);
    std::snprintf(why, n, "there is no operator '%s'", kind.c_str());
    return sl::SupportedLevel::Unsupported;
}

void query(const std::vector<char>& capabilities, const Json& network, std::ostream& out) {
    const sl::SupportQueries ask(capabilities);
    for (const Json& operation : network.at("operations").list) {
        char why[1024] = "";
        const auto level = asked(ask, {operation, network.at("tensors")}, why, sizeof why);
        const bool estimated = level == sl::SupportedLevel::EstimateOnly;
        out << (level ? "supported" : estimated ? "estimate-only" : "unsupported") << '\t'
            << (level ? "" : why) << '\n';
    }
}

// ---- the network ----

using Made = std::shared_ptr<sl::Network>;

class Builder {
public:
    Builder(Made network, const Json& json, const std::string& weights)
        : network_(std::move(network)), json_(json), weights_(weights) {}

    void build() {
        const Json& tensors = json_.at("tensors");
        for (const Json& border : json_.at("inputs").list) {
            const std::string name = border.at("name").text;
            operands_[name] =
                sl::AddInput(network_, info_of(tensors.at(name), sl::DataFormat::NHWC)).tensor;
        }
        for (const Json& operation : json_.at("operations").list) {
            const Step step{operation, tensors};
            operands_[operation.at("output").text] = added(step);
        }
        for (const Json& border : json_.at("outputs").list)
            sl::AddOutput(network_, operand(border.at("name").text));
        read_every_part();
    }

private:
    sl::Operand& operand(const std::string& name) {
        const auto found = operands_.find(name);
        if (found != operands_.end())
            return *found->second;
        const auto held = constant(name, info_of(json_.at("tensors").at(name),
                                                 sl::DataFormat::NHWC));
        operands_[name] = sl::GetOperand(held);
        return *operands_[name];
    }

    std::shared_ptr<sl::Constant> constant(const std::string& name, const sl::TensorInfo& info) {
        const std::size_t offset = json_.at("constants").u(name);
        if (offset >= weights_.size())
            throw std::runtime_error("weights.bin ends too early");
        return sl::AddConstant(network_, info, weights_.data() + offset).tensor;
    }

    std::shared_ptr<sl::Operand> added(const Step& step) {
        const std::string kind = step.kind();
        if (kind == "convolution" || kind == "depthwise" || kind == "fully-connected" ||
            kind == "transpose-convolution") {
            const auto bias = constant(step.input(2), step.bias());
            const auto weights = constant(step.input(1), step.weights());
            sl::Operand& data = operand(step.input(0));
            if (kind == "convolution")
                return sl::AddConvolution(network_, data, *bias, *weights, step.convolution())
                    .tensor;
            if (kind == "depthwise")
                return sl::AddDepthwiseConvolution(network_, data, *bias, *weights,
                                                   step.convolution())
                    .tensor;
            if (kind == "transpose-convolution")
                return sl::AddTransposeConvolution(network_, data, *bias, *weights,
                                                   step.convolution())
                    .tensor;
            return sl::AddFullyConnected(network_, data, *bias, *weights, {step.numbers()}).tensor;
        }
        if (kind == "concatenation") {
            std::vector<sl::Operand*> parts;
            for (const Json& name : step.json.at("inputs").list)
                parts.push_back(&operand(name.text));
            return sl::AddConcatenation(network_, parts, step.join()).tensor;
        }
        sl::Operand& data = operand(step.input(0));
        if (kind == "addition")
            return sl::AddAddition(network_, data, operand(step.input(1)), step.numbers()).tensor;
        if (kind == "multiplication")
            return sl::AddMultiplication(network_, data, operand(step.input(1)), step.numbers())
                .tensor;
        if (kind == "relu")
            return sl::AddRelu(network_, data, step.relu()).tensor;
        if (kind == "requantize")
            return sl::AddRequantize(network_, data, step.requantize()).tensor;
        if (kind == "reinterpret")
            return sl::AddReinterpretQuantization(network_, data, {step.numbers()}).tensor;
        if (kind == "mean")
            return sl::AddMeanXy(network_, data).tensor;
        if (kind == "pooling")
            return sl::AddPooling(network_, data, step.pooling()).tensor;
        if (kind == "sigmoid")
            return sl::AddSigmoid(network_, data).tensor;
        if (kind == "tanh")
            return sl::AddTanh(network_, data).tensor;
        if (kind == "leaky-relu")
            return sl::AddLeakyRelu(network_, data, step.leaky()).tensor;
        if (kind == "split")
            return part_of(step, data);
        if (kind == "transpose")
            return sl::AddTranspose(network_, data, step.order()).tensor;
        if (kind == "depth-to-space")
            return sl::AddDepthToSpace(network_, data, step.block()).tensor;
        if (kind == "resize")
            return sl::AddResize(network_, data, step.resize()).tensor;
        if (kind == "reshape")
            return sl::AddReshape(network_, data, step.result().m_Dimensions).tensor;
        throw std::runtime_error("the shim cannot build '" + kind + "'");
    }

    // The library wants a reader of every part: what nothing reads leaves after the other outputs.
    void read_every_part() {
        std::set<const sl::Operand*> read;
        for (const Json& operation : json_.at("operations").list)
            for (const Json& name : operation.at("inputs").list)
                read.insert(operands_[name.text].get());
        for (const Json& border : json_.at("outputs").list)
            read.insert(operands_[border.at("name").text].get());
        for (const auto& split : splits_)
            for (const auto& part : split.second)
                if (read.count(part.get()) == 0)
                    sl::AddOutput(network_, *part);
    }

    // The parts of a split are operations of their own here and one operation of the library.
    std::shared_ptr<sl::Operand> part_of(const Step& step, sl::Operand& data) {
        const sl::SplitInfo info = step.split();
        std::ostringstream key;
        key << step.input(0) << ' ' << info.m_Axis;
        for (const uint32_t size : info.m_Sizes)
            key << ' ' << size;
        auto found = splits_.find(key.str());
        if (found == splits_.end())
            found = splits_.emplace(key.str(), sl::AddSplit(network_, data, info).tensors).first;
        return found->second.at(step.attrs().u("part"));
    }

    Made network_;
    std::map<std::string, std::vector<std::shared_ptr<sl::Operand>>> splits_;
    const Json& json_;
    const std::string& weights_;
    std::map<std::string, std::shared_ptr<sl::Operand>> operands_;
};

sl::CompilationOptions options_of(int count, char** words) {
    sl::CompilationOptions options;
    const std::map<std::string, bool*> switches{
        {"strategy0", &options.m_Strategy0},
        {"strategy1", &options.m_Strategy1},
        {"strategy3", &options.m_Strategy3},
        {"strategy4", &options.m_Strategy4},
        {"strategy6", &options.m_Strategy6},
        {"strategy7", &options.m_Strategy7},
        {"block-config-16x16", &options.m_BlockConfig16x16},
        {"block-config-32x8", &options.m_BlockConfig32x8},
        {"block-config-8x32", &options.m_BlockConfig8x32},
        {"block-config-16x8", &options.m_BlockConfig16x8},
        {"block-config-8x16", &options.m_BlockConfig8x16},
        {"block-config-8x8", &options.m_BlockConfig8x8},
        {"intermediate-compression", &options.m_EnableIntermediateCompression},
        {"disable-winograd", &options.m_DisableWinograd},
        {"strict-precision", &options.m_StrictPrecision}};
    for (int index = 0; index < count; ++index) {
        const std::string word = words[index];
        const std::size_t middle = word.find('=');
        const auto found = switches.find(word.substr(0, middle));
        if (middle == std::string::npos || found == switches.end())
            throw std::runtime_error("unknown option " + word);
        *found->second = word.substr(middle + 1) == "1";
    }
    return options;
}

template <typename Buffers>
void print_buffers(const char* name, const Buffers& buffers) {
    std::cout << "\"" << name << "\":[";
    const char* between = "";
    for (const auto& buffer : buffers) {
        std::cout << between << buffer.m_Size;
        between = ",";
    }
    std::cout << "]";
}

int compile(const Made& network, const sl::CompilationOptions& options, std::ostream& out) {
    const auto compiled = sl::Compile(*network, options);
    if (compiled.empty()) {
        std::cerr << "the Support Library found no plan for this network on this variant\n";
        return 4;
    }
    if (compiled.size() != 1) {
        std::cerr << "the Support Library made " << compiled.size() << " networks of one\n";
        return 4;
    }
    compiled[0]->Serialize(out);
    std::cout << "{";
    print_buffers("input-bytes", compiled[0]->GetInputBufferInfos());
    std::cout << ",";
    print_buffers("output-bytes", compiled[0]->GetOutputBufferInfos());
    std::cout << ",\"intermediate-bytes\":" << compiled[0]->GetIntermediateBufferSize() << "}\n";
    return 0;
}

sl::EthosNVariant variant_of(const std::string& name) {
    const std::map<std::string, sl::EthosNVariant> known{
        {"ETHOS_N78_1TOPS_2PLE_RATIO", sl::EthosNVariant::ETHOS_N78_1TOPS_2PLE_RATIO},
        {"ETHOS_N78_1TOPS_4PLE_RATIO", sl::EthosNVariant::ETHOS_N78_1TOPS_4PLE_RATIO},
        {"ETHOS_N78_2TOPS_2PLE_RATIO", sl::EthosNVariant::ETHOS_N78_2TOPS_2PLE_RATIO},
        {"ETHOS_N78_2TOPS_4PLE_RATIO", sl::EthosNVariant::ETHOS_N78_2TOPS_4PLE_RATIO},
        {"ETHOS_N78_4TOPS_2PLE_RATIO", sl::EthosNVariant::ETHOS_N78_4TOPS_2PLE_RATIO},
        {"ETHOS_N78_4TOPS_4PLE_RATIO", sl::EthosNVariant::ETHOS_N78_4TOPS_4PLE_RATIO},
        {"ETHOS_N78_8TOPS_2PLE_RATIO", sl::EthosNVariant::ETHOS_N78_8TOPS_2PLE_RATIO}};
    const auto found = known.find(name);
    if (found == known.end())
        throw std::runtime_error("unknown variant " + name);
    return found->second;
}

int run(int count, char** words) {
    const std::string mode = words[1];
    const auto capabilities = sl::GetFwAndHwCapabilities(
        variant_of(words[2]), static_cast<uint32_t>(std::strtoul(words[3], nullptr, 10)));
    const std::string source = contents(words[4]);
    const Json network = Reader(source).read();
    std::ofstream out(words[6], std::ios::binary);
    if (mode == "query") {
        query(capabilities, network, out);
        return 0;
    }
    const std::string weights = contents(words[5]);
    const auto options = options_of(count - 7, words + 7);
    const bool real = mode == "compile";
    const Made made =
        real ? sl::CreateNetwork(capabilities) : sl::CreateEstimationNetwork(capabilities);
    Builder(made, network, weights).build();
    if (real)
        return compile(made, options, out);
    sl::PrintNetworkPerformanceDataJson(out, 0, sl::EstimatePerformance(*made, options));
    return 0;
}

}  // namespace

int main(int count, char** words) {
#ifdef __linux__
    // The library writes bytes that it never set, pieces of addresses: where nothing is moved in
    // memory, and nothing of the caller's environment lies there, they are the same every time.
    const int now = personality(0xffffffff);
    if (now != -1 && !(now & ADDR_NO_RANDOMIZE) && personality(now | ADDR_NO_RANDOMIZE) != -1) {
        const char* paths = std::getenv("LD_LIBRARY_PATH");
        std::string kept = paths ? std::string("LD_LIBRARY_PATH=") + paths : "";
        char* const rest[] = {paths ? &kept[0] : nullptr, nullptr};
        execve("/proc/self/exe", words, rest);
    }
#endif
    if (count == 2 && std::strcmp(words[1], "version") == 0) {
        std::cout << sl::GetLibraryVersion().ToString() << "\n";
        return 0;
    }
    if (count < 7) {
        std::cerr << "shim query|compile|estimate VARIANT SRAM NETWORK WEIGHTS OUT [name=0|1]\n";
        return 2;
    }
    try {
        return run(count, words);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 3;
    }
}
