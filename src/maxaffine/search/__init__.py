"""The methods: each looks for the smallest layer of its kind that is proved, or says why there is none."""
